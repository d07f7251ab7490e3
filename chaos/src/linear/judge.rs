//! Asks the outside checker, `WGLChecker` of `todc-utils`, whether an order of the operations
//! explains all replies. The search and the verdict are the checker's; here a history is put into
//! its form.

use std::cell::Cell;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};

use super::history::{Command, Operation, Outcome};
use super::model::{Case, Class, Register, Service, State, Step, Tried};
use super::reduce::superfluous;
use crate::log::Nanos;

/// The most steps that the checker tries for one history. One that is linearizable takes some
/// hundreds.
const STEPS_MAX: u64 = 5_000_000;
/// The same for a part of a history, of which there are many.
const PART_STEPS_MAX: u64 = 50_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Linearizable,
    NotLinearizable,
    /// The search would take too long.
    Undecided,
}

/// Judges the whole history of a key, which begins free.
pub fn judge(operations: &[Operation], service: Service, tolerated: &[Class]) -> Verdict {
    decide(operations, service, tolerated, None)
}

/// Judges what came after an instant, in a history in which the key had this state then.
pub(super) fn judge_from(
    operations: &[Operation],
    service: Service,
    tolerated: &[Class],
    begin: (Nanos, State),
) -> Verdict {
    decide(operations, service, tolerated, Some(begin))
}

/// The same without leaving out anything, to compare.
#[cfg(test)]
pub(super) fn judge_all(operations: &[Operation], service: Service) -> Verdict {
    let budget = Cell::new(STEPS_MAX);
    let case = Case { operations, service, tolerated: &[], from: 0, budget };
    ask(&case, None, &vec![false; operations.len()])
}

fn decide(
    operations: &[Operation],
    service: Service,
    tolerated: &[Class],
    begin: Option<(Nanos, State)>,
) -> Verdict {
    let from = begin.as_ref().map_or(0, |(from, _)| *from);
    let budget = Cell::new(if begin.is_some() { PART_STEPS_MAX } else { STEPS_MAX });
    let case = Case { operations, service, tolerated, from, budget };
    ask(&case, begin.map(|(_, state)| state), &superfluous(&case))
}

fn ask(case: &Case<'_>, begin: Option<State>, is_out: &[bool]) -> Verdict {
    let history = Actions::of(case, begin, is_out).history(case);
    let is_linearizable = WGLChecker::<Register<'_>>::is_linearizable(history);
    match (case.budget.get(), is_linearizable) {
        (0, _) => Verdict::Undecided,
        (_, true) => Verdict::Linearizable,
        (_, false) => Verdict::NotLinearizable,
    }
}

/// At equal times, the order of actions that says least about the order of steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Begin,
    Begun,
    Call,
    Return,
    /// After everything that was observed.
    Close,
    Closed,
    Never,
}

type At = (Nanos, Rank);

/// Steps, each with the times between which it happens.
struct Actions(Vec<(At, At, Step)>);

impl Actions {
    fn of(case: &Case<'_>, begin: Option<State>, is_out: &[bool]) -> Self {
        let mut actions = Self(Vec::new());
        let seen = case.operations.iter().filter(|one| one.returned_at >= case.from);
        let last_at = seen.map(|one| one.returned_at).max().unwrap_or(case.from);
        if let Some(state) = begin {
            let (begin, begun) = ((case.from, Rank::Begin), (case.from, Rank::Begun));
            actions.0.push((begin, begun, Step::Begin(state)));
            actions.add(case.from, Nanos::MAX, Step::AnyEnd);
        }
        for (index, operation) in (0..).zip(case.operations) {
            if operation.over_at() < case.from || is_out[usize::from(index)] {
                continue;
            }
            actions.add(operation.called_at, operation.over_at(), Step::Call(index));
            actions.add_end(case, index, last_at);
            let over_at = operation.over_at();
            if let Some(value) = case.given_back(operation) {
                actions.add(operation.called_at, Nanos::MAX, Step::GiveBack(value));
            }
            let is_delete = matches!(operation.command, Command::Del | Command::GetDel);
            if case.tolerates(Class::Twice) && is_delete && operation.is_granted() {
                actions.add(operation.called_at, over_at, Step::Again);
            }
        }
        let close = ((Nanos::MAX, Rank::Close), (Nanos::MAX, Rank::Closed), Step::Close);
        actions.0.push(close);
        actions
    }

    fn add(&mut self, from: Nanos, to: Nanos, step: Step) {
        let rank = if to == Nanos::MAX { Rank::Never } else { Rank::Return };
        self.0.push(((from, Rank::Call), (to, rank), step));
    }

    /// The end that an operation sets, unless it comes after everything that was observed.
    fn add_end(&mut self, case: &Case<'_>, index: u16, last_at: Nanos) {
        let operation = &case.operations[usize::from(index)];
        let may_set = operation.is_granted()
            || matches!(operation.outcome, Outcome::Unknown(_))
            || case.tolerates(Class::Silent)
            || operation.called_at < case.from;
        let Some(bounds) = case.bounds(index).filter(|_| may_set) else { return };
        let (earliest_at, latest_at) = match case.is_end_optional(index) {
            true if case.tolerates(Class::Expiry) => (operation.called_at, Nanos::MAX),
            true => (bounds.earliest_at, Nanos::MAX),
            false => (bounds.earliest_at, bounds.latest_at),
        };
        if earliest_at <= last_at {
            self.add(earliest_at, latest_at, Step::End(index));
        }
    }

    /// In the checker's form. Every step is a process of its own.
    fn history<'a>(self, case: &'a Case<'a>) -> History<Tried<'a>> {
        let mut sorted: Vec<(At, usize, Action<Tried<'a>>)> = Vec::new();
        for (process, (from, to, step)) in self.0.into_iter().enumerate() {
            let tried = Tried { step, case };
            sorted.push((from, process, Action::Call(tried.clone())));
            sorted.push((to, process, Action::Response(tried)));
        }
        sorted.sort_by_key(|(at, process, _)| (*at, *process));
        History::from_actions(sorted.into_iter().map(|(_, process, act)| (process, act)).collect())
    }
}
