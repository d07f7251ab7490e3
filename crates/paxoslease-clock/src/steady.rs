//! Time that is never slewed and that goes on while the machine is suspended, computed from three
//! clocks of the Linux kernel that each lack one of the two properties.
//!
//! `CLOCK_MONOTONIC_RAW` is exempt from slewing but stands still during suspend. `CLOCK_BOOTTIME`
//! counts suspend but is slewed by `adjtimex`, exactly like `CLOCK_MONOTONIC`. The two slewed
//! clocks differ by exactly the suspended time, so RAW + (BOOTTIME - MONOTONIC) has both
//! properties.
//!
//! The kernel shows one clock at a time, and a thread can be preempted or the machine suspended
//! between two readings. Nevertheless, a value of [`Steady::now`] is never more than the time when
//! the call returned, and not less than the time when it began, except for [`TOLERANCE`]:
//! - The suspended time changes only at a resume, so it is stored. The stored value is never too
//!   long, because BOOTTIME is read *before* the MONOTONIC that is subtracted.
//! - Every call compares the stored value with a reading that is never too short, because there
//!   MONOTONIC is read first. The call notices a resume before that reading. After a later resume
//!   the result is still a time between the beginning and the end of the call.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::ClockId;

/// How much suspended time may go unnoticed, in nanoseconds: more than the time between two
/// readings, less than any real suspend.
const TOLERANCE: i64 = 100_000;
/// Two readings at most this many nanoseconds apart give the suspended time precisely enough.
const NEAR: i64 = 10_000;
/// How often to try to read two clocks that close together.
const TRIES: usize = 100;

#[derive(Debug)]
pub(crate) struct Steady {
    /// How far BOOTTIME is known to be ahead of MONOTONIC: at most the true suspended time.
    suspended: AtomicI64,
}

impl Steady {
    pub(crate) const fn new() -> Self {
        Self { suspended: AtomicI64::new(i64::MIN) }
    }

    /// The time in nanoseconds; `read` reads a clock of the kernel.
    #[inline]
    pub(crate) fn now(&self, read: impl Fn(ClockId) -> i64) -> u64 {
        let mut suspended = self.suspended.load(Ordering::Acquire);
        let before = read(ClockId::Monotonic);
        let at_most = read(ClockId::Boottime) - before;
        if at_most > suspended.saturating_add(TOLERANCE) {
            suspended = self.measure(&read);
        }
        u64::try_from(read(ClockId::MonotonicRaw) + suspended).unwrap_or(0)
    }

    #[cold]
    fn measure(&self, read: &impl Fn(ClockId) -> i64) -> i64 {
        let mut at_least = i64::MIN;
        for _ in 0..TRIES {
            let before = read(ClockId::Monotonic);
            let boottime = read(ClockId::Boottime);
            let after = read(ClockId::Monotonic);
            at_least = at_least.max(boottime - after);
            if after - before <= NEAR {
                break;
            }
        }
        self.suspended.fetch_max(at_least, Ordering::AcqRel).max(at_least)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MS: i64 = 1_000_000;
    const HOUR: i64 = 3_600_000 * MS;
    /// The rate of chrony's `maxslewrate`, its fastest by default.
    const SLEW_PPM: i64 = 83_333;

    /// A kernel in which reading a clock takes a moment. Before some readings the thread is
    /// preempted or the machine suspended.
    #[derive(Default)]
    struct Kernel {
        /// Real time awake, which RAW counts, and asleep.
        awake: Cell<i64>,
        asleep: Cell<i64>,
        /// How far slewing has set MONOTONIC and BOOTTIME forward.
        slewed: Cell<i64>,
        slew_ppm: Cell<i64>,
        readings: Cell<usize>,
        pauses: RefCell<Vec<Pause>>,
    }

    /// Before the reading of this number, time passes awake and then asleep.
    struct Pause {
        before: usize,
        awake: i64,
        asleep: i64,
    }

    impl Kernel {
        fn pass(&self, awake: i64, asleep: i64) {
            self.awake.set(self.awake.get() + awake);
            self.asleep.set(self.asleep.get() + asleep);
            self.slewed.set(self.slewed.get() + awake * self.slew_ppm.get() / 1_000_000);
        }

        /// The time that a clock for leases should show.
        fn truth(&self) -> i64 {
            self.awake.get() + self.asleep.get()
        }

        fn read(&self, clock: ClockId) -> i64 {
            let number = self.readings.replace(self.readings.get() + 1);
            for pause in self.pauses.borrow().iter().filter(|pause| pause.before == number) {
                self.pass(pause.awake, pause.asleep);
            }
            self.pass(60, 0);
            match clock {
                ClockId::MonotonicRaw => self.awake.get(),
                ClockId::Monotonic => self.awake.get() + self.slewed.get(),
                ClockId::Boottime => self.awake.get() + self.slewed.get() + self.asleep.get(),
                other => panic!("{other:?} is not a clock to count leases by"),
            }
        }

        /// Reads the clock, which must show a time between the beginning and the end of the call.
        fn read_steady(&self, steady: &Steady) -> i64 {
            let begun_at = self.truth();
            let shown = steady.now(|clock| self.read(clock)) as i64;
            let ended_at = self.truth();
            assert!(shown <= ended_at, "{} ns from the future", shown - ended_at);
            assert!(shown >= begun_at - TOLERANCE, "{} ns old as it was read", begun_at - shown);
            shown
        }
    }

    #[test]
    fn slewing_changes_nothing() {
        let (kernel, steady) = (Kernel::default(), Steady::new());
        for ppm in [SLEW_PPM, -SLEW_PPM, 0] {
            kernel.slew_ppm.set(ppm);
            let (shown, truth) = (kernel.read_steady(&steady), kernel.truth());
            kernel.pass(12_000 * MS, 0);
            let (passed, real) = (kernel.read_steady(&steady) - shown, kernel.truth() - truth);
            assert!((passed - real).abs() < 1000, "{ppm} ppm: {passed} for {real}");
        }
    }

    #[test]
    fn suspended_time_counts_from_the_first_reading_after_it() {
        for asleep in [1, 500 * MS, HOUR, 1000 * HOUR] {
            let (kernel, steady) = (Kernel::default(), Steady::new());
            kernel.pass(HOUR, HOUR);
            let before = kernel.read_steady(&steady);
            kernel.pass(MS, asleep);
            let passed = kernel.read_steady(&steady) - before;
            assert!((passed - MS - asleep).abs() <= TOLERANCE, "{passed} for {asleep}");
        }
    }

    #[test]
    fn a_pause_between_any_two_readings_shows_no_wrong_time() {
        let spans = [0, 50_000, MS, 500 * MS, HOUR];
        for ppm in [SLEW_PPM, 0, -SLEW_PPM] {
            for (first, second) in (0..24).flat_map(|one| (0..24).map(move |two| (one, two))) {
                for (awake, asleep) in spans.into_iter().flat_map(|one| spans.map(|two| (one, two)))
                {
                    let (kernel, steady) = (Kernel::default(), Steady::new());
                    kernel.slew_ppm.set(ppm);
                    kernel.pass(HOUR, MS);
                    *kernel.pauses.borrow_mut() = vec![
                        Pause { before: first, awake, asleep },
                        Pause { before: second, awake: asleep, asleep: awake },
                    ];
                    let shown: Vec<i64> = (0..8).map(|_| kernel.read_steady(&steady)).collect();
                    assert!(shown.is_sorted(), "it went back: {shown:?}");
                }
            }
        }
    }

    #[test]
    fn a_thread_preempted_at_every_reading_still_returns() {
        let (kernel, steady) = (Kernel::default(), Steady::new());
        *kernel.pauses.borrow_mut() =
            (0..4 * TRIES).map(|before| Pause { before, awake: MS, asleep: 0 }).collect();
        let shown = steady.now(|clock| kernel.read(clock)) as i64;
        assert!(shown <= kernel.truth());
        assert!(kernel.readings.get() <= 3 * TRIES + 3);
        kernel.pauses.borrow_mut().clear();
        kernel.read_steady(&steady);
    }

    #[test]
    fn boottime_may_be_behind_monotonic() {
        let (kernel, steady) = (Kernel::default(), Steady::new());
        let read = |clock| match clock {
            ClockId::Boottime => kernel.read(clock) - HOUR,
            _ => kernel.read(clock),
        };
        kernel.pass(2 * HOUR, 0);
        let before = steady.now(read);
        kernel.pass(0, MS);
        assert!(steady.now(read) >= before + MS as u64);
    }
}
