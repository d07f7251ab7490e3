//! When a lease may end and must have ended, and what that says about remaining times.
//!
//! A ttl counts from some instant between the call and the reply of the operation that set it. So
//! the lease must not be over before call + ttl, and must not be seen by a command that is called
//! after reply + ttl. Both with [`margin`]: clocks of nodes count in milliseconds, and their rates
//! differ from that of the recording clock by at most the drift of the cell. A node reads its clock
//! after it received a command, so delays of a busy machine need no margin.

use super::{ANY_END, Case, Class};
use crate::linear::history::{Condition, Millis, Outcome, Reply};
use crate::log::Nanos;

const MILLI: Nanos = 1_000_000;
/// The whole milliseconds that a service may round by: when it begins to count, when it ends, and
/// in a reply.
const ROUNDED: Nanos = 3 * MILLI;
/// The rate error of two clocks that differ by at most 1000 ppm each, as a divisor.
const DRIFT: Nanos = 500;

/// The times between which a lease ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linear) struct Bounds {
    pub(in crate::linear) earliest_at: Nanos,
    pub(in crate::linear) latest_at: Nanos,
}

fn margin(ttl: Nanos) -> Nanos {
    ROUNDED + ttl / DRIFT
}

impl Case<'_> {
    /// When the end that this operation sets comes.
    pub(in crate::linear) fn bounds(&self, index: u16) -> Option<Bounds> {
        if index == ANY_END {
            return Some(Bounds { earliest_at: 0, latest_at: Nanos::MAX });
        }
        let operation = &self.operations[usize::from(index)];
        let ttl = millis(operation.command.ttl()?);
        let earliest_at = (operation.called_at + ttl).saturating_sub(margin(ttl));
        let latest_at = operation.over_at().saturating_add(ttl + margin(ttl));
        Some(Bounds { earliest_at, latest_at })
    }

    /// Whether this operation was answered so late that its end may have passed before.
    pub(super) fn is_slow(&self, index: u16) -> bool {
        let operation = &self.operations[usize::from(index)];
        let bounds = self.bounds(index);
        matches!(operation.outcome, Outcome::Reply(_))
            && bounds.is_some_and(|bounds| bounds.earliest_at < operation.returned_at)
    }

    /// Whether the end may come late or never: that of an operation that may not have happened.
    pub(in crate::linear) fn is_end_optional(&self, index: u16) -> bool {
        let operation = &self.operations[usize::from(index)];
        matches!(operation.outcome, Outcome::Unknown(_)) || self.tolerates(Class::Expiry)
    }

    /// When the last of these ends comes.
    fn last(&self, ends: &[u16]) -> Bounds {
        let all = ends.iter().filter_map(|end| self.bounds(*end));
        let later = |one: Bounds, other: Bounds| Bounds {
            earliest_at: one.earliest_at.max(other.earliest_at),
            latest_at: one.latest_at.max(other.latest_at),
        };
        all.reduce(later).expect("an end that is not over was set by an operation")
    }

    /// Whether a remaining time is right, in a reply to the operation with this index.
    pub(super) fn fits_remaining(
        &self,
        ends: Option<&[u16]>,
        index: u16,
        told: Option<&Reply>,
    ) -> bool {
        let told = match told {
            None => return true,
            Some(Reply::Number(told)) => *told,
            Some(_) => return false,
        };
        let is_unknown = ends.is_some_and(|ends| ends.contains(&ANY_END));
        if is_unknown || self.tolerates(Class::Remaining) {
            return told >= -1;
        }
        let Some(ends) = ends else { return told == -1 };
        let Ok(told) = Millis::try_from(told) else { return false };
        let operation = &self.operations[usize::from(index)];
        let Bounds { earliest_at, latest_at } = self.last(ends);
        let from = operation.called_at.saturating_add(millis(told));
        let to = operation.returned_at.saturating_add(millis(told));
        earliest_at <= to.saturating_add(ROUNDED) && from <= latest_at.saturating_add(ROUNDED)
    }

    /// Whether a PEXPIRE may set the end, and whether it may leave it.
    pub(super) fn decide(
        &self,
        ends: Option<&[u16]>,
        index: u16,
        condition: Option<Condition>,
    ) -> (bool, bool) {
        let Some(condition) = condition else { return (true, false) };
        let is_unknown = ends.is_some_and(|ends| ends.contains(&ANY_END));
        if is_unknown || self.tolerates(Class::Remaining) {
            return (true, true);
        }
        let Some(ends) = ends else {
            // No end is later than any end.
            let sets = matches!(condition, Condition::Nx | Condition::Lt);
            return (sets, !sets);
        };
        let now = self.last(ends);
        let new = self.bounds(index).expect("a PEXPIRE has a ttl");
        match condition {
            Condition::Nx => (false, true),
            Condition::Xx => (true, false),
            Condition::Gt => (new.latest_at > now.earliest_at, new.earliest_at <= now.latest_at),
            Condition::Lt => (new.earliest_at < now.latest_at, new.latest_at >= now.earliest_at),
        }
    }
}

fn millis(span: Millis) -> Nanos {
    span.saturating_mul(MILLI)
}
