//! A timer wheel for the alarms of many guards: an alarm is set, moved and cleared in constant time
//! and without an allocation.
//!
//! The wheel is a ring of buckets, one per tick. A bucket is a linked list through the entries. An
//! alarm rings up to one tick early. An alarm beyond the reach of the ring rings at its end, and
//! the caller sets it again.

use std::time::Duration;

use paxoslease_core::Instant;

const TICK_NANOS: u64 = 4_000_000;
const BUCKETS: u64 = 8192;
const NIL: u32 = u32::MAX;

/// The neighbours of an entry in the list of its bucket.
#[derive(Clone, Copy, Debug)]
struct Place {
    previous: u32,
    next: u32,
    /// `NIL` when no alarm is set.
    bucket: u32,
}

const NOWHERE: Place = Place { previous: NIL, next: NIL, bucket: NIL };

#[derive(Debug)]
pub(super) struct Wheel {
    heads: Vec<u32>,
    /// One bit per bucket: whether it has entries.
    occupied: Vec<u64>,
    places: Vec<Place>,
    /// Every bucket before this tick has been emptied.
    tick: u64,
    len: usize,
}

impl Wheel {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heads: vec![NIL; BUCKETS as usize],
            occupied: vec![0; (BUCKETS / 64) as usize],
            places: Vec::new(),
            tick: now.as_nanos() / TICK_NANOS,
            len: 0,
        }
    }

    /// How early an alarm may ring.
    pub(super) const fn tick() -> Duration {
        Duration::from_nanos(TICK_NANOS)
    }

    /// Sets the alarm of an entry, instead of the one it may have had.
    pub(super) fn set(&mut self, entry: u32, at: Instant) {
        self.clear(entry);
        let tick = (at.as_nanos() / TICK_NANOS).clamp(self.tick, self.tick + BUCKETS - 1);
        let bucket = (tick % BUCKETS) as u32;
        let next = std::mem::replace(&mut self.heads[bucket as usize], entry);
        if next != NIL {
            self.places[next as usize].previous = entry;
        }
        self.places[entry as usize] = Place { previous: NIL, next, bucket };
        self.occupied[bucket as usize / 64] |= 1 << (bucket % 64);
        self.len += 1;
    }

    /// Clears the alarm of an entry, if it has one.
    pub(super) fn clear(&mut self, entry: u32) {
        if self.places.len() <= entry as usize {
            self.places.resize(entry as usize + 1, NOWHERE);
        }
        let Place { previous, next, bucket } =
            std::mem::replace(&mut self.places[entry as usize], NOWHERE);
        if bucket == NIL {
            return;
        }
        self.len -= 1;
        if next != NIL {
            self.places[next as usize].previous = previous;
        }
        if previous != NIL {
            self.places[previous as usize].next = next;
            return;
        }
        self.heads[bucket as usize] = next;
        if next == NIL {
            self.occupied[bucket as usize / 64] &= !(1 << (bucket % 64));
        }
    }

    /// The next entry whose alarm rings, which clears it.
    pub(super) fn ring(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos() / TICK_NANOS;
        loop {
            let head = self.heads[(self.tick % BUCKETS) as usize];
            if head != NIL {
                self.clear(head);
                return Some(head);
            }
            if self.tick >= now {
                return None;
            }
            self.tick = self.next_tick().unwrap_or(now).min(now);
        }
    }

    /// When the next alarm rings.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let tick = self.next_tick()?;
        Some(Instant::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// The first tick from here on whose bucket has entries.
    fn next_tick(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let start = self.tick % BUCKETS;
        let words = BUCKETS / 64;
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word as usize];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let bucket = word * 64 + u64::from(bits.trailing_zeros());
                return Some(self.tick + (bucket + BUCKETS - start) % BUCKETS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_core::Rng;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_alarm_rings_once_and_at_most_a_tick_early() {
        let mut wheel = Wheel::new(at(1000));
        for (entry, millis) in [(0, 1500), (1, 1001), (2, 999), (3, 1500)] {
            wheel.set(entry, at(millis));
        }
        let mut rung = Vec::new();
        for millis in 1000..1600 {
            while let Some(entry) = wheel.ring(at(millis)) {
                rung.push((entry, millis));
            }
        }
        rung.sort_unstable();
        assert_eq!(rung.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for (entry, millis) in rung {
            let due = [1500_u64, 1001, 1000, 1500][entry as usize];
            assert!((due.saturating_sub(4)..=due).contains(&millis), "{entry} at {millis}");
        }
        assert_eq!(wheel.next_at(), None);
    }

    #[test]
    fn an_alarm_beyond_the_ring_rings_at_its_end() {
        let mut wheel = Wheel::new(at(0));
        wheel.set(7, at(3_600_000));
        let end = wheel.next_at().expect("set");
        assert!(end > at(30_000) && end < at(40_000));
        assert_eq!(wheel.ring(at(29_000)), None);
        assert_eq!(wheel.ring(end), Some(7));
    }

    /// Against a plain list of deadlines, over random settings, clearings and steps of time.
    #[test]
    fn it_behaves_like_a_list_of_deadlines() {
        let mut rng = Rng::seeded(3);
        let mut wheel = Wheel::new(at(0));
        let mut plain: Vec<Option<u64>> = vec![None; 64];
        let mut now = 0;
        for _ in 0..50_000 {
            let entry = (rng.bits() % 64) as u32;
            match rng.bits() % 4 {
                0 => {
                    wheel.clear(entry);
                    plain[entry as usize] = None;
                }
                1 | 2 => {
                    let tick = now / 4 + rng.bits() % 9000;
                    wheel.set(entry, at(tick * 4));
                    plain[entry as usize] = Some(tick.min(now / 4 + BUCKETS - 1).max(now / 4));
                }
                _ => {
                    now += rng.bits() % 400;
                    let mut rung: Vec<u32> = Vec::new();
                    while let Some(entry) = wheel.ring(at(now)) {
                        rung.push(entry);
                    }
                    rung.sort_unstable();
                    let due = |tick: &Option<u64>| tick.is_some_and(|tick| tick <= now / 4);
                    let expected: Vec<u32> =
                        (0..64).filter(|entry| due(&plain[*entry as usize])).collect();
                    assert_eq!(rung, expected);
                    plain.iter_mut().filter(|tick| due(tick)).for_each(|tick| *tick = None);
                }
            }
            let next = plain.iter().flatten().min().map(|tick| at(tick * 4));
            assert_eq!(wheel.next_at(), next);
        }
    }
}
