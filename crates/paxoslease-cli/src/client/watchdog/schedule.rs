//! When to end a command whose lease is not renewed. Only arithmetic: time is an argument.
//!
//! ```text
//!   ... held ...  | SIGTERM        grace        | SIGKILL  margin  | the lease is over (T2)
//! ```
//! The margin is for a busy machine: the process must have ended in time, not only be signalled in
//! time.

use std::time::Duration;

use crate::args::OnLost;

/// The longest time between SIGKILL and the end of the lease.
const MARGIN_MAX: Duration = Duration::from_secs(1);
const MARGIN_MIN: Duration = Duration::from_millis(10);
const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// How a command ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) on_lost: OnLost,
    /// From SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// From SIGKILL to the end of the lease.
    pub(crate) margin: Duration,
}

impl Policy {
    /// A policy with the requested grace, or with a default.
    ///
    /// # Errors
    /// The longest possible grace. A lease is renewed from a third of its ttl on (P5). SIGTERM must
    /// come after the half of it, or a single lost packet would end the command.
    pub(crate) fn new(
        on_lost: OnLost,
        ttl: Duration,
        grace: Option<Duration>,
    ) -> Result<Self, Duration> {
        let margin = (ttl / 20).clamp(MARGIN_MIN, MARGIN_MAX);
        let grace_max = (ttl / 2).saturating_sub(margin);
        let grace = match grace {
            Some(grace) if grace > grace_max => return Err(grace_max),
            Some(grace) => grace,
            None => GRACE_DEFAULT.min(ttl / 3).min(grace_max),
        };
        Ok(Self { on_lost, grace, margin })
    }
}

/// The signal for the command's group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KillSignal {
    Terminate,
    Kill,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Held,
    Terminated { kill_at: Duration },
    Killed,
}

/// The schedule of one command. Instants are readings of the clock for leases.
#[derive(Debug)]
pub(crate) struct Schedule {
    policy: Policy,
    ends_at: Duration,
    stage: Stage,
}

impl Schedule {
    pub(crate) const fn new(policy: Policy, ends_at: Duration) -> Self {
        Self { policy, ends_at, stage: Stage::Held }
    }

    /// The lease was renewed. Never shortens the time, and has no effect after SIGTERM.
    pub(crate) fn extend(&mut self, ends_at: Duration) {
        self.ends_at = self.ends_at.max(ends_at);
    }

    /// Whether the command was asked to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.stage != Stage::Held
    }

    /// The last signal that was due.
    pub(crate) fn last(&self) -> Option<KillSignal> {
        match self.stage {
            Stage::Held => None,
            Stage::Terminated { .. } => Some(KillSignal::Terminate),
            Stage::Killed => Some(KillSignal::Kill),
        }
    }

    /// When the next signal is due, unless something happens before.
    pub(crate) fn alarm_at(&self) -> Option<Duration> {
        let Policy { on_lost, grace, margin } = self.policy;
        match (self.stage, on_lost) {
            (Stage::Killed, _) | (Stage::Held, OnLost::Ignore) => None,
            (Stage::Held, OnLost::Kill) => Some(self.ends_at.saturating_sub(margin)),
            (Stage::Held, OnLost::Term) => Some(self.ends_at.saturating_sub(margin + grace)),
            (Stage::Terminated { kill_at }, _) => Some(kill_at),
        }
    }

    /// The signal that is due now.
    pub(crate) fn due(&mut self, now: Duration) -> Option<KillSignal> {
        if now < self.alarm_at()? {
            return None;
        }
        match self.stage {
            Stage::Held => self.lose(now),
            Stage::Terminated { .. } | Stage::Killed => {
                self.stage = Stage::Killed;
                Some(KillSignal::Kill)
            }
        }
    }

    /// The lease is lost, or `lock` has ended: the same signals, but sooner.
    pub(crate) fn lose(&mut self, now: Duration) -> Option<KillSignal> {
        if self.is_ending() {
            return None;
        }
        let kill_at = self.ends_at.saturating_sub(self.policy.margin);
        let kill_at = kill_at.min(now.saturating_add(self.policy.grace));
        match self.policy.on_lost {
            OnLost::Ignore => None,
            OnLost::Term if now < kill_at => {
                self.stage = Stage::Terminated { kill_at };
                Some(KillSignal::Terminate)
            }
            OnLost::Term | OnLost::Kill => {
                self.stage = Stage::Killed;
                Some(KillSignal::Kill)
            }
        }
    }

    /// The command has ended after a signal. The rest of its group has the grace, but at most until
    /// the lease ends. Returns whether that is new.
    pub(crate) fn wind_up(&mut self, now: Duration) -> bool {
        let is_news = !self.is_ending();
        if is_news {
            let Policy { on_lost, grace, margin } = self.policy;
            let lasts_until = match on_lost {
                OnLost::Ignore => Duration::MAX,
                OnLost::Term | OnLost::Kill => self.ends_at.saturating_sub(margin),
            };
            let kill_at = now.saturating_add(grace).min(lasts_until);
            self.stage = Stage::Terminated { kill_at };
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A lease of 15 s with a grace of 5 s, which ends at 100 s.
    fn schedule(on_lost: &str) -> Schedule {
        let on_lost = clap::ValueEnum::from_str(on_lost, false).expect("a policy");
        let policy = Policy::new(on_lost, ms(15_000), Some(ms(5_000))).expect("room");
        Schedule::new(policy, ms(100_000))
    }

    #[test]
    fn signals_are_due_as_the_transcript_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/client/watchdog/schedule.txt");
        let mut played = schedule("term");
        paxoslease_rig::check_transcript(path.as_ref(), |command| {
            let (verb, argument) = command.split_once(' ').expect("a verb and an argument");
            let at = || ms(argument.parse().expect("milliseconds"));
            let due = |signal: Option<KillSignal>| signal.map_or("-".into(), |s| format!("{s:?}"));
            let outcome = match verb {
                "on-lost" => {
                    played = schedule(argument);
                    "held".to_owned()
                }
                "renewed" => {
                    played.extend(at());
                    "held".to_owned()
                }
                "winds-up" => format!("news: {}", played.wind_up(at())),
                "lost" => due(played.lose(at())),
                "now" => due(played.due(at())),
                _ => panic!("unknown command {command}"),
            };
            let then = played.alarm_at().map_or("never".into(), |at| at.as_millis().to_string());
            format!("{outcome}, then {then}")
        });
    }

    #[test]
    fn every_policy_leaves_time_to_renew() {
        for ttl in [50, 51, 99, 500, 1_000, 15_000, 60_000, 86_400_000].map(Duration::from_millis) {
            let policy = Policy::new(OnLost::Term, ttl, None).expect("the default fits");
            assert!(policy.grace <= ttl / 3 && policy.grace <= GRACE_DEFAULT);
            assert!(policy.grace + policy.margin <= ttl / 2, "{policy:?}");
            let grace_max = Policy::new(OnLost::Term, ttl, Some(ttl)).expect_err("no room");
            let policy = Policy::new(OnLost::Term, ttl, Some(grace_max)).expect("it was offered");
            assert_eq!(policy.grace, grace_max);
        }
        assert_eq!(Policy::new(OnLost::Term, ms(15_000), Some(ms(10_000))), Err(ms(6_750)));
    }
}
