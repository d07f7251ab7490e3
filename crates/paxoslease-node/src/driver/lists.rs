//! Lists of leases, a share per turn: however many clients ask, all lists of a shard together look
//! at a bounded number of slots in one turn, and go on in the turns that follow. So no list delays
//! a request for a lease for long.

use std::collections::VecDeque;

use paxoslease_core::{Instant, LiveLease, Name, Shard};
use paxoslease_holder::Filter;
use paxoslease_wire::ShardId;

use crate::request::{Answer, Cursor, PageMax, ReplyTo};

/// The most slots that all lists together look at in one turn.
pub(crate) const SLOTS_PER_TURN: u32 = 512;
/// A list looks at this many slots for each lease of its page before it answers with an empty page.
const SLOTS_PER_LEASE: u32 = 16;
/// The most lists that may wait in one shard.
pub(crate) const WAITING_MAX: usize = 1024;

/// The lists that wait, the next first.
#[derive(Default)]
pub(super) struct Lists(VecDeque<List>);

struct List {
    from: ReplyTo,
    prefix: Box<str>,
    filter: Filter,
    max: PageMax,
    /// The next slot to look at.
    slot: u32,
    /// Where the page ends, even if it is empty.
    end: u32,
}

impl Lists {
    /// Refuses the list if too many lists wait already.
    pub(super) fn add(
        &mut self,
        from: ReplyTo,
        slot: u32,
        prefix: Box<str>,
        filter: Filter,
        max: PageMax,
    ) -> Result<(), Answer> {
        if self.0.len() >= WAITING_MAX {
            return Err(Answer::TooManyLists(WAITING_MAX));
        }
        // A page without a lease would make no progress.
        let max = PageMax { leases: max.leases.max(1), bytes: max.bytes.max(1) };
        let end = slot.saturating_add(max.leases.saturating_mul(SLOTS_PER_LEASE));
        self.0.push_back(List { from, prefix, filter, max, slot, end });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers all lists, because the node stops.
    pub(super) fn refuse(&mut self, answers: &mut Vec<(ReplyTo, Answer)>) {
        answers.extend(self.0.drain(..).map(|list| (list.from, Answer::Stopping)));
    }

    /// Gives lists their share of this turn, in their order. A list that found a lease is answered.
    /// A list that found none queues again behind the others, so a list that waits keeps no leases.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        shard: &Shard,
        id: ShardId,
        answers: &mut Vec<(ReplyTo, Answer)>,
    ) {
        let (mut left, count) = (SLOTS_PER_TURN, shard.slot_count());
        // A list waits until it can have its whole share, so that many lists make no short pages.
        while let Some(mut list) = self.0.pop_front_if(|list| list.share(count) <= left) {
            let start = list.slot;
            let leases = list.look(now, shard, list.share(count));
            left -= list.slot - start;
            let next = if list.slot < count {
                Some(Cursor { shard: id.index(), slot: list.slot })
            } else {
                let next = id.index() + 1;
                (next < id.count()).then_some(Cursor { shard: next, slot: 0 })
            };
            if leases.is_empty() && list.slot < list.end.min(count) {
                self.0.push_back(list);
            } else {
                answers.push((list.from, Answer::Listed { leases, next }));
            }
        }
    }
}

impl List {
    /// Looks at up to `slots` slots, and returns the leases that it found there.
    fn look(&mut self, now: Instant, shard: &Shard, slots: u32) -> Vec<LiveLease> {
        let (mut leases, mut bytes) = (Vec::new(), 0);
        let end = self.slot + slots;
        while self.slot < end && leases.len() < self.max.leases as usize && bytes < self.max.bytes {
            let fits = |name: Name<'_>| {
                name.as_str().starts_with(&*self.prefix) && self.filter.shows(name.as_str())
            };
            if let Some(seen) = shard.lease_in(now, self.slot, fits) {
                bytes += PageMax::lease_bytes(&seen.label);
                leases.push(seen);
            }
            self.slot += 1;
        }
        leases
    }

    /// The slots that it may look at in one turn, of `count` slots of the shard.
    fn share(&self, count: u32) -> u32 {
        self.end.min(count).saturating_sub(self.slot).min(SLOTS_PER_TURN)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::tests::TestDriver;

    const ALL: PageMax = PageMax { leases: 100, bytes: PageMax::BYTES };

    fn add(lists: &mut Lists, id: u64, slot: u32, max: PageMax) -> Result<(), Answer> {
        lists.add(ReplyTo { origin: 0, id }, slot, "".into(), Filter::ALL, max)
    }

    /// The number of leases on each page of one turn, and where the next page begins.
    fn pages(lists: &mut Lists, driver: &TestDriver, shard: u16) -> Vec<(usize, Next)> {
        let (mut answers, id) = (Vec::new(), ShardId::new(shard, 2).expect("one of two"));
        lists.turn(driver.now, driver.shard(), id, &mut answers);
        let page = |(_, answer)| match answer {
            Answer::Listed { leases, next } => {
                (leases.len(), next.map(|next: Cursor| (next.shard, next.slot)))
            }
            other => panic!("{other:?}"),
        };
        answers.into_iter().map(page).collect()
    }

    type Next = Option<(u16, u32)>;

    #[test]
    fn pages_go_on_in_this_shard_and_then_in_the_next() {
        let mut driver = TestDriver::new();
        for name in ["a", "b", "c"] {
            driver.acquire(name, "", Duration::ZERO);
        }
        let mut lists = Lists::default();
        add(&mut lists, 1, 0, PageMax { leases: 2, ..ALL }).expect("room");
        assert_eq!(pages(&mut lists, &driver, 0), [(2, Some((0, 2)))]);
        add(&mut lists, 2, 2, ALL).expect("room");
        assert_eq!(pages(&mut lists, &driver, 0), [(1, Some((1, 0)))]);
        add(&mut lists, 3, 0, ALL).expect("room");
        assert_eq!(pages(&mut lists, &driver, 1), [(3, None)]);
        assert!(lists.is_empty());
    }
}
