//! What each command does to a key, and which reply is right: a register with an expiry, as in
//! Redis, with the fences of leases beside.
//!
//! [`Specification`] is the interface of the outside checker. It wants one state after each step,
//! so whatever may happen at several times is a step of its own: the end of a ttl, and an operation
//! whose outcome is unknown. Deliberately lacks the search for an order, which is the checker's.

mod ends;

use std::cell::Cell;

use todc_utils::Specification;

use super::history::{Command, Condition, Doubt, Operation, Outcome, Reply, Value, When};
use crate::log::Nanos;

/// Stands for the unknown end of a lease that was held when a part of a history begins.
const ANY_END: u16 = u16::MAX;

/// Kinds of wrong replies. Each names what a model allows that tolerates them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// (i) A grant while another tenure is held.
    TwoHolders,
    /// (ii) A release, delete or extension that replied that it did nothing took effect.
    Silent,
    /// (iii) A read, or the refusal of an acquire, that nothing explains.
    Dirty,
    /// (iii) The same of LEASE.GET.
    Hint,
    /// (iii) A SET XX that was refused for a value that the key had not.
    Conflict,
    /// (iv) A remaining time that no command set, or a condition decided by one.
    Remaining,
    /// (v) One DEL ended two tenures.
    Twice,
    /// (vi) A release or delete that did nothing replied that it did.
    Claimed,
    /// A fence that does not rise.
    Fence,
    /// A lease that ended too early or too late.
    Expiry,
}

impl Class {
    pub const ALL: [Self; 10] = [
        Self::TwoHolders,
        Self::Silent,
        Self::Dirty,
        Self::Hint,
        Self::Conflict,
        Self::Remaining,
        Self::Twice,
        Self::Claimed,
        Self::Fence,
        Self::Expiry,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::TwoHolders => "(i) two holders",
            Self::Silent => "(ii) said that it did nothing, and did",
            Self::Dirty => "(iii) a read or a refusal that nothing explains",
            Self::Hint => "(iii) a LEASE.GET that nothing explains",
            Self::Conflict => "(iii) a SET XX refused for a value that was not there",
            Self::Remaining => "(iv) a remaining time that nobody set",
            Self::Twice => "(v) one DEL ended two tenures",
            Self::Claimed => "(vi) said that it ended a lease, and did not",
            Self::Fence => "a fence that does not rise",
            Self::Expiry => "ended too early or too late",
        }
    }

    /// The class that the reply of an operation belongs to if it is wrong.
    fn of(operation: &Operation) -> Option<Self> {
        let is_granted = operation.is_granted();
        match operation.command {
            Command::LeaseGet => Some(Self::Hint),
            Command::Get | Command::Exists | Command::Pttl => Some(Self::Dirty),
            Command::Set { .. } | Command::LeaseAcquire(..) => match operation.outcome {
                _ if is_granted => Some(Self::TwoHolders),
                Outcome::Reply(Reply::Conflict) => Some(Self::Conflict),
                _ => Some(Self::Dirty),
            },
            Command::Pexpire { .. } if is_granted => Some(Self::Dirty),
            Command::Extend(..) | Command::LeaseRenew { .. } if is_granted => None,
            Command::Pexpire { .. } | Command::Extend(..) | Command::LeaseRenew { .. } => {
                Some(Self::Silent)
            }
            Command::Del | Command::GetDel | Command::Release(_) | Command::LeaseRelease { .. } => {
                Some(if is_granted { Self::Claimed } else { Self::Silent })
            }
        }
    }
}

/// How services differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// Whether SET XX replaces another value. A cell refuses that.
    pub overwrites: bool,
    /// Whether an acquire whose client has left may be released (P8).
    pub gives_back: bool,
}

impl Service {
    pub const REDIS: Self = Self { overwrites: true, gives_back: false };
    pub const CELL: Self = Self { overwrites: false, gives_back: true };
}

/// The state of a key in a serial order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct State {
    held: Option<Held>,
    /// The highest fence so far.
    fence: u64,
    /// Operations that set an end and were answered only after it.
    slow: Vec<u16>,
    /// Whether nothing is observed any more, so that what may happen need not.
    is_closed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Held {
    value: Value,
    /// `None` if no reply told it.
    fence: Option<u64>,
    /// The operations whose ends are not over yet; the last of these ends is that of the lease.
    /// `None` for a lease without an end.
    ends: Option<Vec<u16>>,
}

impl State {
    /// A key that was acquired at an unknown time before.
    pub(super) fn held_before(value: Value, fence: Option<u64>) -> Self {
        let held = Some(Held { value, fence, ends: Some(vec![ANY_END]) });
        Self { held, ..Self::default() }
    }
}

/// One step of a serial order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A part of a history begins in this state.
    Begin(State),
    /// The operation with this index.
    Call(u16),
    /// The end that this operation set.
    End(u16),
    /// The end of a lease that was held when a part of a history begins.
    AnyEnd,
    /// The service releases a lease whose client has left.
    GiveBack(Value),
    /// A DEL ends another tenure; only where [`Class::Twice`] is tolerated.
    Again,
    /// What may have happened need not have happened.
    Close,
}

/// A history with the rules by which it is judged.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) operations: &'a [Operation],
    pub(super) service: Service,
    /// The wrong replies that are tolerated.
    pub(super) tolerated: &'a [Class],
    /// The start of a part of a history: operations called before it may have any reply.
    pub(super) from: Nanos,
    /// How many steps the checker may still try. After that, it is told that all is well.
    pub(super) budget: Cell<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Tried<'a> {
    pub(super) step: Step,
    pub(super) case: &'a Case<'a>,
}

/// The specification of a key, for the outside checker.
pub(super) struct Register<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Specification for Register<'a> {
    type State = State;
    type Operation = Tried<'a>;

    fn init() -> State {
        State::default()
    }

    fn apply(tried: &Tried<'a>, state: &State) -> (bool, State) {
        let budget = &tried.case.budget;
        // Whatever is tried from here on is accepted, so that the search ends.
        let Some(left) = budget.get().checked_sub(1) else { return (true, state.clone()) };
        budget.set(left);
        match tried.case.after(&tried.step, state) {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}

impl Case<'_> {
    pub(super) fn tolerates(&self, class: Class) -> bool {
        self.tolerated.contains(&class)
    }

    /// Whether the reply of an operation must be right.
    pub(super) fn is_strict(&self, operation: &Operation) -> bool {
        let is_known = matches!(operation.outcome, Outcome::Reply(_));
        let is_tolerated = Class::of(operation).is_some_and(|class| self.tolerates(class));
        is_known && !is_tolerated && operation.called_at >= self.from
    }

    /// The state after a step, or `None` if the step is not possible in this state.
    fn after(&self, step: &Step, state: &State) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Begin(begin) => Some(begin.clone()),
            Step::Call(index) => self.after_call(*index, state),
            Step::End(index) => self.after_end(*index, state),
            Step::AnyEnd => {
                end(&mut next, ANY_END);
                optional(state, next)
            }
            Step::GiveBack(value) => {
                next.held = next.held.filter(|held| held.value != *value);
                optional(state, next)
            }
            Step::Again => {
                next.held = None;
                Some(next)
            }
            Step::Close => {
                next.is_closed = true;
                Some(next)
            }
        }
    }

    fn after_end(&self, index: u16, state: &State) -> Option<State> {
        let mut next = state.clone();
        end(&mut next, index);
        if self.is_end_optional(index) {
            return optional(state, next);
        }
        // An end must not be used up before the operation that sets it.
        let is_early = next == *state && self.is_slow(index) && !state.slow.contains(&index);
        (!is_early).then_some(next)
    }

    fn after_call(&self, index: u16, state: &State) -> Option<State> {
        let operation = &self.operations[usize::from(index)];
        let mut next = state.clone();
        if self.is_slow(index) {
            next.slow.push(index);
            next.slow.sort_unstable();
        }
        let told = match &operation.outcome {
            Outcome::Unknown(_) => {
                self.perform(&mut next, index, None);
                return optional(state, next);
            }
            Outcome::Reply(reply) => reply,
        };
        if operation.called_at < self.from {
            self.perform(&mut next, index, None);
            return Some(next);
        }
        let class = Class::of(operation);
        match class.filter(|class| self.tolerates(*class)) {
            None => self.perform(&mut next, index, Some(told)).then_some(next),
            Some(Class::TwoHolders) => {
                next.held = next.held.filter(|_| !operation.command.acquires());
                self.perform(&mut next, index, Some(told)).then_some(next)
            }
            Some(Class::Hint | Class::Conflict) => Some(next),
            Some(Class::Dirty) if operation.changes_nothing() => Some(next),
            Some(_) => {
                self.perform(&mut next, index, None);
                Some(next)
            }
        }
    }

    /// Performs an operation on the state. Whether the reply is right; `None` for any reply.
    fn perform(&self, next: &mut State, index: u16, told: Option<&Reply>) -> bool {
        let command = &self.operations[usize::from(index)].command;
        let is_told = |reply: Reply| told.is_none_or(|told| *told == reply);
        if next.held.is_none() {
            return self.perform_on_free(next, index, told);
        }
        let held = next.held.as_mut().expect("it was looked at");
        let (value, fence) = (held.value, held.fence);
        match *command {
            Command::Set { when: When::IsFree, get: true, .. } => is_told(Reply::Value(value)),
            Command::Set { when: When::IsFree, .. } | Command::LeaseAcquire(..) => {
                is_told(Reply::Nil)
            }
            Command::Set { value: new, get, .. } => {
                if value != new && !self.service.overwrites {
                    return is_told(Reply::Conflict);
                }
                held.value = new;
                self.set_end(next, index);
                is_told(if get { Reply::Value(value) } else { Reply::Ok })
            }
            Command::Get => is_told(Reply::Value(value)),
            Command::Exists => is_told(Reply::Number(1)),
            Command::Pttl => self.fits_remaining(held.ends.as_deref(), index, told),
            Command::Del => {
                next.held = None;
                is_told(Reply::Number(1))
            }
            Command::GetDel => {
                next.held = None;
                is_told(Reply::Value(value))
            }
            Command::Pexpire { condition, .. } => self.expire(next, index, condition, told),
            Command::Release(wanted) => {
                next.held = next.held.take().filter(|_| value != wanted);
                is_told(Reply::Number((value == wanted).into()))
            }
            Command::Extend(wanted, _) if value == wanted => {
                self.set_end(next, index);
                is_told(Reply::Number(1))
            }
            Command::Extend(..) => is_told(Reply::Number(0)),
            Command::LeaseRenew { fence: wanted, ttl } if fence == Some(wanted) => {
                add_end(held, index);
                is_told(Reply::Number(ttl as i64))
            }
            Command::LeaseRenew { .. } => is_told(Reply::NotHeld),
            Command::LeaseRelease { fence: wanted } => {
                let is_its = fence == Some(wanted);
                next.held = next.held.take().filter(|_| !is_its);
                is_told(Reply::Number(is_its.into()))
            }
            Command::LeaseGet => self.look(next, index, told),
        }
    }

    fn perform_on_free(&self, next: &mut State, index: u16, told: Option<&Reply>) -> bool {
        let is_told = |reply: Reply| told.is_none_or(|told| *told == reply);
        match self.operations[usize::from(index)].command {
            Command::Set { value, when: When::IsFree, get, .. } => {
                next.held = Some(Held { value, fence: None, ends: None });
                self.set_end(next, index);
                is_told(if get { Reply::Nil } else { Reply::Ok })
            }
            Command::LeaseAcquire(value, _) => {
                let fence = match told {
                    None => None,
                    Some(Reply::Granted { fence }) => Some(*fence),
                    Some(_) => return false,
                };
                next.held = Some(Held { value, fence, ends: None });
                self.set_end(next, index);
                fence.is_none_or(|fence| self.raise(next, fence))
            }
            Command::Set { .. } | Command::Get | Command::GetDel | Command::LeaseGet => {
                is_told(Reply::Nil)
            }
            Command::Pttl => is_told(Reply::Number(-2)),
            Command::LeaseRenew { .. } => is_told(Reply::NotHeld),
            Command::Exists
            | Command::Del
            | Command::Pexpire { .. }
            | Command::Release(_)
            | Command::Extend(..)
            | Command::LeaseRelease { .. } => is_told(Reply::Number(0)),
        }
    }

    /// LEASE.GET of a held name. The first one that sees the lease of a SET tells its fence.
    fn look(&self, next: &mut State, index: u16, told: Option<&Reply>) -> bool {
        let held = next.held.as_mut().expect("the name is held");
        let Some(Reply::Held { value, fence, ttl }) = told.copied() else { return told.is_none() };
        let remaining = Reply::Number(ttl);
        let fits = value == held.value
            && held.fence.is_none_or(|held| held == fence)
            && self.fits_remaining(held.ends.as_deref(), index, Some(&remaining));
        let is_new = held.fence.replace(fence).is_none();
        fits && (!is_new || self.raise(next, fence))
    }

    fn raise(&self, next: &mut State, fence: u64) -> bool {
        let rises = fence > next.fence || self.tolerates(Class::Fence);
        next.fence = next.fence.max(fence);
        rises
    }

    fn expire(
        &self,
        next: &mut State,
        index: u16,
        condition: Option<Condition>,
        told: Option<&Reply>,
    ) -> bool {
        let ends = next.held.as_ref().and_then(|held| held.ends.as_deref());
        let (may_set, may_keep) = self.decide(ends, index, condition);
        match told {
            Some(Reply::Number(0)) => may_keep,
            Some(Reply::Number(1)) | None if may_set => {
                self.set_end(next, index);
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Replaces the end by that of this operation.
    fn set_end(&self, next: &mut State, index: u16) {
        let held = next.held.as_mut().expect("the key is held");
        let ttl = self.operations[usize::from(index)].command.ttl();
        held.ends = ttl.map(|_| vec![index]);
    }

    /// Moves the end to that of this operation, unless it is later already.
    /// The value of an acquire whose client has left, which the service may give back.
    pub(super) fn given_back(&self, operation: &Operation) -> Option<Value> {
        let has_left = operation.outcome == Outcome::Unknown(Doubt::Gone);
        let is_given = self.service.gives_back && has_left && operation.command.acquires();
        operation.command.sets().filter(|_| is_given)
    }
}

/// Something that need not happen. It happens only where it changes the state, and once nothing is
/// observed any more: the search is much shorter for it.
fn optional(state: &State, next: State) -> Option<State> {
    if state.is_closed {
        return Some(state.clone());
    }
    (next != *state).then_some(next)
}

/// Moves the end to that of an operation, unless it is later already.
fn add_end(held: &mut Held, index: u16) {
    if let Some(ends) = &mut held.ends {
        ends.push(index);
        ends.sort_unstable();
    }
}

/// One of the ends of a lease is over.
fn end(next: &mut State, index: u16) {
    let Some(ends) = next.held.as_mut().and_then(|held| held.ends.as_mut()) else { return };
    ends.retain(|end| *end != index);
    if ends.is_empty() {
        next.held = None;
    }
}
