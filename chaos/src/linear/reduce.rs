//! Leaves out operations that say nothing new, because the search for an order takes exponential
//! time in those that overlap.
//!
//! An operation that changed nothing only says that the key was once in some state between its call
//! and its reply. If another operation implies that, and ran within that time, then any order of
//! the rest has a place for it: right before or right after the other one. So leaving it out
//! changes no verdict. A property test compares the verdicts.

use super::history::{Command, Operation, Outcome, Reply, Value, When};
use super::model::Case;

/// The state right before or right after an operation, as far as its reply tells.
#[derive(Clone, Copy, Debug)]
enum Sight {
    Free,
    Held { value: Option<Value>, fence: Option<u64> },
}

/// For every operation, whether to leave it out.
pub(super) fn superfluous(case: &Case<'_>) -> Vec<bool> {
    let operations = case.operations;
    let mut is_out = vec![false; operations.len()];
    for (place, one) in operations.iter().enumerate() {
        if !case.is_strict(one) {
            continue;
        }
        is_out[place] = operations.iter().enumerate().any(|(other_place, other)| {
            let is_within =
                one.called_at <= other.called_at && other.returned_at <= one.returned_at;
            let may_tell = other_place != place && !is_out[other_place] && case.is_strict(other);
            let (before, after) = sights(other);
            let is_told = |sight: Option<Sight>| sight.is_some_and(|sight| tells(sight, one));
            may_tell && is_within && (is_told(before) || is_told(after))
        });
    }
    is_out
}

/// What an operation says about the state right before it and right after it.
fn sights(operation: &Operation) -> (Option<Sight>, Option<Sight>) {
    let Outcome::Reply(reply) = operation.outcome else { return (None, None) };
    let held = Sight::Held { value: None, fence: None };
    let with = |value| Sight::Held { value: Some(value), fence: None };
    let of = |fence| Sight::Held { value: None, fence: Some(fence) };
    let both = |sight| (Some(sight), Some(sight));
    let is_granted = operation.is_granted();
    match (operation.command, reply) {
        (Command::Set { value, when: When::IsFree, .. }, _) if is_granted => {
            (Some(Sight::Free), Some(with(value)))
        }
        (Command::Set { value, when: When::IsHeld, .. }, _) if is_granted => {
            (Some(held), Some(with(value)))
        }
        (Command::LeaseAcquire(value, _), Reply::Granted { fence }) => {
            (Some(Sight::Free), Some(Sight::Held { value: Some(value), fence: Some(fence) }))
        }
        (Command::GetDel, Reply::Value(value)) => (Some(with(value)), Some(Sight::Free)),
        (Command::Del, Reply::Number(1)) => (Some(held), Some(Sight::Free)),
        (Command::Release(value), Reply::Number(1)) => (Some(with(value)), Some(Sight::Free)),
        (Command::LeaseRelease { fence }, Reply::Number(1)) => (Some(of(fence)), Some(Sight::Free)),
        (Command::LeaseGet, Reply::Held { value, fence, .. }) => {
            both(Sight::Held { value: Some(value), fence: Some(fence) })
        }
        (Command::LeaseRenew { fence, .. }, Reply::Number(_)) => both(of(fence)),
        (Command::Extend(value, _), Reply::Number(1)) => both(with(value)),
        (Command::Get | Command::Set { .. }, Reply::Value(value)) => both(with(value)),
        (Command::Pexpire { .. } | Command::Exists, Reply::Number(1))
        | (Command::Set { when: When::IsFree, .. } | Command::LeaseAcquire(..), Reply::Nil) => {
            both(held)
        }
        (command, reply) if says_free(&command, &reply) => both(Sight::Free),
        _ => (None, None),
    }
}

/// Whether a key in this state explains all that an operation replied, and is left as it is.
fn tells(sight: Sight, operation: &Operation) -> bool {
    let Outcome::Reply(reply) = operation.outcome else { return false };
    let is_free = matches!(sight, Sight::Free);
    let (value, fence) = match sight {
        Sight::Free => (None, None),
        Sight::Held { value, fence } => (value, fence),
    };
    let has_other = |wanted: Value| value.is_some_and(|value| value != wanted);
    match (operation.command, reply) {
        (Command::Set { when: When::IsFree, get, .. }, Reply::Nil) => !get && !is_free,
        (Command::LeaseAcquire(..), Reply::Nil) | (Command::Exists, Reply::Number(1)) => !is_free,
        (Command::Get | Command::Set { when: When::IsFree, .. }, Reply::Value(seen)) => {
            value == Some(seen)
        }
        (Command::Set { value: wanted, .. }, Reply::Conflict) => has_other(wanted),
        (Command::Release(wanted) | Command::Extend(wanted, _), Reply::Number(0)) => {
            is_free || has_other(wanted)
        }
        (Command::LeaseRenew { fence: wanted, .. }, Reply::NotHeld)
        | (Command::LeaseRelease { fence: wanted }, Reply::Number(0)) => {
            is_free || fence.is_some_and(|fence| fence != wanted)
        }
        (command, reply) => is_free && says_free(&command, &reply),
    }
}

/// Whether only a free key gives this reply, and is left free.
const fn says_free(command: &Command, reply: &Reply) -> bool {
    let is_read = matches!(command, Command::Get | Command::GetDel | Command::LeaseGet);
    match reply {
        Reply::Nil => is_read || matches!(command, Command::Set { when: When::IsHeld, .. }),
        Reply::Number(0) => matches!(
            command,
            Command::Exists | Command::Del | Command::Pexpire { condition: None, .. }
        ),
        Reply::Number(-2) => matches!(command, Command::Pttl),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
