//! The time of a data folder: the time that runs of it have lived (K11).
//!
//! It goes on where the last batch on disk says, and within one boot of the machine it includes the
//! time since then. So ends of durable leases come late, never early. It is kept in nanoseconds:
//! conversions lose nothing, and an end that was durably over is over after the next start too.

use std::fs;

use paxoslease_core::{DurableRegister, DurableValue, DurableWrite, Instant};
use paxoslease_wire::{BatchHead, BootTime};

use crate::clock::Clock;

/// The id of a boot that the system does not tell.
const UNKNOWN: [u8; 16] = [0; 16];

/// When a run began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunStart {
    /// By the clock of the node.
    pub(crate) now: Instant,
    /// The same moment of the machine's boot.
    pub(crate) boot: BootTime,
}

impl RunStart {
    /// Now, on this machine.
    pub(crate) fn of(clock: &Clock) -> Self {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let id = id.ok().and_then(|text| parse(&text)).unwrap_or(UNKNOWN);
        Self::in_boot(id, clock)
    }

    /// Now, in a boot that is known.
    pub(crate) fn in_boot(id: [u8; 16], clock: &Clock) -> Self {
        let (now, since_boot) = clock.now_since_boot();
        let nanos = u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX);
        Self { now, boot: BootTime { id, nanos } }
    }
}

/// A boot id as Linux shows it: 32 hexadecimal digits and dashes.
fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|char| *char != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// Converts between the clock of a run and the clock of its folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileClock {
    start: RunStart,
    /// The time of the folder at the start.
    at_start: Instant,
}

impl FileClock {
    /// Goes on after the last batch of a run, or begins.
    pub(super) fn new(start: RunStart, last: Option<&BatchHead>) -> Self {
        let at_start = last.map_or(Instant::ZERO, |last| {
            let same_boot = last.boot.id == start.boot.id && start.boot.id != UNKNOWN;
            let passed = start.boot.nanos.saturating_sub(last.boot.nanos);
            let passed = if same_boot { passed } else { 0 };
            Instant::from_nanos(last.file_time.as_nanos().saturating_add(passed))
        });
        Self { start, at_start }
    }

    /// The time of the folder when the run's clock shows `at`; never is never.
    pub(super) fn file_time(&self, at: Instant) -> Instant {
        shift(at, self.start.now, self.at_start)
    }

    /// When the run's clock shows it.
    fn instant(&self, file_time: Instant) -> Instant {
        shift(file_time, self.at_start, self.start.now)
    }

    /// The same moment of the boot.
    pub(super) fn boot(&self, at: Instant) -> BootTime {
        let nanos = Instant::from_nanos(self.start.boot.nanos);
        let nanos = shift(at, self.start.now, nanos).as_nanos();
        BootTime { nanos, ..self.start.boot }
    }

    /// The write, with an end of the folder's clock.
    pub(super) fn write_to_file(&self, write: &DurableWrite) -> DurableWrite {
        match write {
            DurableWrite::Register(register) => {
                DurableWrite::Register(with_end(register.clone(), |end| self.file_time(end)))
            }
            other => other.clone(),
        }
    }

    /// The register, with an end of the run's clock.
    pub(super) fn register_from_file(&self, register: DurableRegister) -> DurableRegister {
        with_end(register, |end| self.instant(end))
    }
}

/// An instant of one clock, by another clock that showed `to` when the first one showed `from`.
fn shift(at: Instant, from: Instant, to: Instant) -> Instant {
    if at == Instant::MAX {
        return at;
    }
    let nanos = |at: Instant| i128::from(at.as_nanos());
    let nanos = nanos(at) - nanos(from) + nanos(to);
    Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

fn with_end(
    mut register: DurableRegister,
    convert: impl FnOnce(Instant) -> Instant,
) -> DurableRegister {
    if let DurableValue::Held { ends_at, .. } = &mut register.value {
        *ends_at = convert(*ends_at);
    }
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn start(now: u64, boot: u8, nanos: u64) -> RunStart {
        RunStart { now: at(now), boot: BootTime { id: [boot; 16], nanos } }
    }

    #[test]
    fn file_time_includes_the_time_between_runs_of_one_boot() {
        let first = FileClock::new(start(1000, 1, 1000), None);
        assert_eq!(first.file_time(at(1500)), at(500));
        let (file_time, boot) = (first.file_time(at(1500)), first.boot(at(1500)));
        let last = BatchHead { sequence: 1, file_time, boot };
        for (start, expected) in [
            (start(1700, 1, 1700), 700),
            // After another boot, or one of which nothing is known, nothing is added.
            (start(5, 2, 5), 500),
            (start(1700, 0, 1700), 500),
            // The clock of the run has another origin or rate than that of the machine.
            (start(90, 1, 1700), 700),
            (start(1700, 1, 100), 500),
        ] {
            let next = FileClock::new(start, Some(&last));
            assert_eq!(next.file_time(start.now), at(expected), "{start:?}");
        }
        let unknown = BatchHead { boot: BootTime { id: UNKNOWN, nanos: 7 }, ..last };
        let next = start(1700, 0, 1700);
        assert_eq!(FileClock::new(next, Some(&unknown)).file_time(next.now), at(500));
    }

    #[test]
    fn ends_come_back_as_they_were_on_any_clock_of_a_run() {
        for (now, file_time) in [(1000, 7), (7, 1000), (1 << 50, 0), (0, 1 << 50)] {
            let boot = BootTime { id: [1; 16], nanos: 0 };
            let last = BatchHead { sequence: 1, file_time: at(file_time), boot };
            let clock = FileClock::new(start(now, 2, 0), Some(&last));
            for end in [now, now + 1, now + (1 << 60)] {
                assert_eq!(clock.instant(clock.file_time(at(end))), at(end));
            }
            assert_eq!(clock.file_time(Instant::MAX), Instant::MAX);
            assert_eq!(clock.instant(Instant::MAX), Instant::MAX);
        }
    }

    #[test]
    fn a_boot_id_is_32_digits() {
        let text = "0102aabb-0304-0506-0708-090a0b0c0d0e\n";
        let id = [1, 2, 0xaa, 0xbb, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        assert_eq!(parse(text), Some(id));
        assert_eq!(parse("0102"), None);
        assert_eq!(parse("no digits of a boot id, but so long"), None);
    }
}
