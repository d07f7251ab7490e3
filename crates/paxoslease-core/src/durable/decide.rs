//! What a change stores, computed from the promises of a majority (K6 to K8). Pure.

use alloc::vec::Vec;

use crate::durable::message::{OwnedRegister, SentValue};
use crate::rules::Rule;
use crate::{Ballot, Config, Durability, Label, Lasts, MemberSet, Tenure};

/// What a change is for (K8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Goal {
    /// The tenure lasts this long from now on. If it only prolongs, a later end stays.
    Keep { tenure: Tenure, lasts: Lasts, prolongs: bool },
    /// The tenure is over.
    Release { tenure: Tenure },
    /// Nothing: the members that missed a value get it.
    Check,
}

/// What a change has achieved once its value is stored by a majority.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Outcome {
    Kept {
        fence: Tenure,
        lasts: Lasts,
    },
    /// A Keep found its tenure over.
    NotHeld,
    /// A Release; whether it ended the tenure, `None` if that cannot be known.
    Released {
        held: Option<bool>,
    },
    Checked,
}

/// A member's promise for this ballot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Promised {
    pub(crate) member: MemberSet,
    /// The tenure of the live ordinary lease there.
    pub(crate) lease: Option<Tenure>,
    pub(crate) register: Option<OwnedRegister>,
}

/// A change that waits for promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) config: &'a Config,
    pub(crate) goal: Goal,
    pub(crate) ballot: Ballot,
    /// The ballots of earlier attempts, which may have stored something.
    pub(crate) earlier: &'a [Ballot],
    /// No more promises are expected.
    pub(crate) is_final: bool,
    /// Every member promised, except those that are not connected. One in quarantine is connected,
    /// and promises later.
    pub(crate) is_complete: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Too few promises to decide.
    NeedMore,
    /// What the promises show must change first. The change is tried again later.
    Wait,
    /// Nothing has to be stored.
    Done(Outcome),
    Store {
        label: Option<Label>,
        value: SentValue,
        outcome: Outcome,
    },
}

/// The value that promises report.
struct Current<'a> {
    /// The accepted value with the highest ballot; `None` too if it was never chosen.
    register: Option<&'a OwnedRegister>,
    /// What is left of it; `None` if it is not held.
    left: Option<Lasts>,
    /// Whether a majority reported its ballot. If not, ordinary tenures may have followed it.
    is_sure: bool,
    /// The reported value that was never chosen.
    dropped: Option<&'a OwnedRegister>,
}

impl Asked<'_> {
    fn on(&self, rule: Rule) -> bool {
        self.config.rules.on(rule)
    }

    fn quorum(&self) -> usize {
        self.config.cell.quorum() as usize
    }

    /// K6 to K8.
    pub(crate) fn decide(&self, promises: &[Promised]) -> Decision {
        let cell = &self.config.cell;
        let (old, quorum) = (cell.old_set(), self.quorum());
        let counted: Vec<&Promised> =
            promises.iter().filter(|promised| old.contains(promised.member)).collect();
        let enough = if self.on(Rule::PromisesOfMajority) { quorum } else { 1 };
        if counted.len() < enough {
            return Decision::NeedMore;
        }
        let current = self.current(&counted);
        // Whether a majority has the tenure as an ordinary lease; `None` if that is not told yet.
        let leased = |tenure: Tenure| {
            let count = counted.iter().filter(|it| it.lease == Some(tenure)).count();
            let missing = old.len() as usize - counted.len();
            match count {
                0 => Some(false),
                count if count >= quorum => Some(true),
                count if count + missing < quorum => Some(false),
                _ => None,
            }
        };
        let others = |tenure: Tenure| {
            self.on(Rule::OtherLeaseBlocks)
                && counted.iter().any(|it| it.lease.is_some_and(|lease| lease != tenure))
        };
        match self.goal {
            Goal::Check => self.unchanged(promises, &counted, &current, Outcome::Checked),
            Goal::Keep { tenure, lasts, prolongs } => {
                if let Some(register) = current.register
                    && let Some(left) = current.left
                    && register.value.is(tenure)
                {
                    let holder = register.value.tenure();
                    if others(holder) {
                        return Decision::Wait;
                    }
                    let lasts = if prolongs { lasts.max(left) } else { lasts };
                    let fence = self.fence(&current, register);
                    return self.keep(Some(register.label.clone()), holder, fence, lasts);
                }
                match leased(tenure) {
                    _ if others(tenure) => Decision::Wait,
                    Some(true) => self.keep(None, tenure, tenure, lasts),
                    None if !self.is_final => Decision::NeedMore,
                    None => Decision::Wait,
                    Some(false) if self.takes_lower(&current, tenure) => {
                        self.keep(None, tenure, tenure, lasts)
                    }
                    Some(false) => self.unchanged(promises, &counted, &current, Outcome::NotHeld),
                }
            }
            Goal::Release { tenure } => {
                let leased = leased(tenure);
                if leased.is_none() && !self.is_final {
                    return Decision::NeedMore;
                }
                self.release(promises, &counted, &current, tenure, leased)
            }
        }
    }

    /// What K8 forbids, for its mutant.
    fn takes_lower(&self, current: &Current<'_>, tenure: Tenure) -> bool {
        !self.on(Rule::KeepNeedsLease)
            && current.register.is_none_or(|register| register.value.fence() < tenure)
    }

    /// K6: the accepted value with the highest ballot, of those that can have been chosen.
    fn current<'a>(&self, counted: &[&'a Promised]) -> Current<'a> {
        let registers = || counted.iter().filter_map(|promised| promised.register.as_ref());
        let highest = registers().max_by_key(|register| register.ballot);
        let highest = if self.on(Rule::HighestWins) {
            highest
        } else {
            registers().min_by_key(|register| register.ballot)
        };
        let is_held = |register: &OwnedRegister| register.value.left().is_some();
        let is_value = |register: &OwnedRegister| matches!(register.value, SentValue::Held { .. });
        let held = registers().filter(|register| is_held(register)).count();
        let idle = counted.len() - held;
        let enough = if self.on(Rule::DropNeedsMajority) { self.quorum() } else { 1 };
        let drops = self.on(Rule::UnchosenIsDropped)
            && self.config.durability != Durability::Volatile
            && idle >= enough;
        let Some(register) = highest else {
            return Current { register: None, left: None, is_sure: true, dropped: None };
        };
        // One member with this ballot is enough to say that the end has passed.
        let same = |other: &&OwnedRegister| {
            other.ballot == register.ballot || !self.on(Rule::EndOfThisBallot) && is_value(other)
        };
        let left = registers().filter(same).map(|other| other.value.left()).min().flatten();
        // A value whose end has passed may have been chosen: its name is made free at once.
        if drops && left.is_some() {
            let highest = registers().max_by_key(|register| register.ballot);
            return Current { register: None, left: None, is_sure: true, dropped: highest };
        }
        let reported = registers().filter(|other| other.ballot == register.ballot).count();
        let is_sure = reported >= self.quorum() || !self.on(Rule::FenceRises);
        Current { register: Some(register), left, is_sure, dropped: None }
    }

    /// K7: a held value of a minority may have been overtaken by ordinary tenures.
    fn fence(&self, current: &Current<'_>, register: &OwnedRegister) -> Tenure {
        let raised = Tenure::of(self.ballot).filter(|_| !current.is_sure);
        raised.unwrap_or_else(|| register.value.fence())
    }

    fn keep(&self, label: Option<Label>, tenure: Tenure, fence: Tenure, lasts: Lasts) -> Decision {
        let value = SentValue::Held { tenure, fence, lasts: Some(lasts) };
        Decision::Store { label, value, outcome: Outcome::Kept { fence, lasts } }
    }

    fn release(
        &self,
        promises: &[Promised],
        counted: &[&Promised],
        current: &Current<'_>,
        tenure: Tenure,
        leased: Option<bool>,
    ) -> Decision {
        let is_first = self.earlier.is_empty();
        if let Some(register) = current.register
            && current.left.is_some()
            && register.value.is(tenure)
        {
            let (tenure, fence) = (register.value.tenure(), register.value.fence());
            return self.free(tenure, fence, Some(true));
        }
        let fence = current.register.map(|register| register.value.fence());
        let is_below = fence.is_none_or(|fence| fence < tenure);
        if is_below || !self.on(Rule::ReleaseComparesFence) && current.left.is_some() {
            let held = if is_first { leased } else { None };
            return self.free(tenure, tenure, held);
        }
        let by = match current.register.map(|register| register.value) {
            Some(SentValue::Free { by, .. }) => by,
            Some(SentValue::Held { .. }) | None => Ballot::ZERO,
        };
        let is_ours = self.earlier.contains(&by) && self.on(Rule::FreeNamesRelease);
        let held = match is_first {
            true => Some(false),
            false if is_ours => Some(true),
            false if by != Ballot::ZERO => Some(false),
            false => None,
        };
        if held == Some(false) && !self.on(Rule::NotHeldIsWritten) {
            return Decision::Done(Outcome::Released { held });
        }
        self.unchanged(promises, counted, current, Outcome::Released { held })
    }

    fn free(&self, tenure: Tenure, fence: Tenure, held: Option<bool>) -> Decision {
        let by = if held == Some(true) { self.ballot } else { Ballot::ZERO };
        let outcome = Outcome::Released { held };
        Decision::Store { label: None, value: SentValue::Free { tenure, fence, by }, outcome }
    }

    /// K7: what a change that changes nothing stores before it is answered: the current value, or
    /// nothing if a majority has it already.
    fn unchanged(
        &self,
        promises: &[Promised],
        counted: &[&Promised],
        current: &Current<'_>,
        outcome: Outcome,
    ) -> Decision {
        let is_leased = |it: &&&Promised| it.lease.is_some();
        if let Some(register) = current.dropped {
            // An acquire may be under way whose value is to be stored next.
            if counted.iter().any(|it| is_leased(&it)) && self.on(Rule::DropWaits) {
                return Decision::Wait;
            }
            let (tenure, fence) = (register.value.tenure(), register.value.fence());
            let value = SentValue::Free { tenure, fence, by: Ballot::ZERO };
            return Decision::Store { label: None, value, outcome };
        }
        let Some(register) = current.register else { return Decision::Done(outcome) };
        let value = match register.value {
            value @ SentValue::Free { .. } => value,
            SentValue::Held { tenure, .. } => match current.left {
                None => SentValue::Free { tenure, fence: register.value.fence(), by: Ballot::ZERO },
                Some(left) => {
                    let other = |it: &&Promised| it.lease.is_some_and(|lease| lease != tenure);
                    if counted.iter().any(other) && self.on(Rule::OtherLeaseBlocks) {
                        return Decision::Wait;
                    }
                    let carried = self.on(Rule::RepairCarriesEnd);
                    let lasts = if carried { left } else { Lasts::FOREVER };
                    // A member that is missing may show that the fence need not rise.
                    let can_wait = self.goal == Goal::Check && !self.config.cell.is_joint();
                    if can_wait && !current.is_sure && !self.is_complete {
                        return Decision::Wait;
                    }
                    let fence = self.fence(current, register);
                    SentValue::Held { tenure, fence, lasts: Some(lasts) }
                }
            },
        };
        let has_it = |it: &&Promised| {
            it.register.as_ref().is_some_and(|stored| stored.ballot == register.ballot)
        };
        let who = promises.iter().filter(has_it).map(|it| it.member);
        let who = who.fold(MemberSet::EMPTY, MemberSet::with);
        let is_same = matches!(
            (value, register.value),
            (SentValue::Free { .. }, SentValue::Free { .. })
                | (SentValue::Held { .. }, SentValue::Held { .. })
        ) && value.fence() == register.value.fence();
        // A check also repairs members that answered and do not have the value.
        let repairs = self.goal == Goal::Check && !promises.iter().all(|it| has_it(&it));
        if is_same && self.config.cell.is_quorum(who) && !repairs {
            return Decision::Done(outcome);
        }
        Decision::Store { label: Some(register.label.clone()), value, outcome }
    }
}
