//! What the conditions of a script say about a lock.

use super::syntax::Binary;

/// What must hold where a command stands. A later one says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Guard {
    #[default]
    None,
    /// Something about what the store holds.
    State,
    /// The store holds a value that the caller passes: the caller owns the lock.
    Owner,
}

/// What is known of the value of an expression.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Judged {
    /// It depends on what a command replied.
    pub(super) is_replied: bool,
    /// It differs between rounds of a loop.
    pub(super) is_varying: bool,
    pub(super) is_literal: bool,
    /// What it guards as a condition, where it is true and where it is false.
    pub(super) if_true: Guard,
    pub(super) if_false: Guard,
}

impl Judged {
    pub(super) const LITERAL: Self = Self { is_literal: true, ..Self::PASSED };
    /// What the caller passes.
    pub(super) const PASSED: Self = Self {
        is_replied: false,
        is_varying: false,
        is_literal: false,
        if_true: Guard::None,
        if_false: Guard::None,
    };

    pub(super) fn of(is_replied: bool, is_varying: bool) -> Self {
        let guard = if is_replied { Guard::State } else { Guard::None };
        Self { is_replied, is_varying, if_true: guard, if_false: guard, ..Self::PASSED }
    }

    pub(super) fn negated(self) -> Self {
        Self { if_true: self.if_false, if_false: self.if_true, ..self }
    }

    pub(super) fn of_operator(operator: Binary, left: Self, right: Self) -> Self {
        let is_replied = left.is_replied || right.is_replied;
        let plain = Self::of(is_replied, left.is_varying || right.is_varying);
        let guarded = |if_true, if_false| Self { if_true, if_false, ..plain };
        match operator {
            Binary::And => {
                guarded(left.if_true.max(right.if_true), left.if_false.min(right.if_false))
            }
            Binary::Or => {
                guarded(left.if_true.min(right.if_true), left.if_false.max(right.if_false))
            }
            Binary::Equal if is_owner(left, right) => guarded(Guard::Owner, Guard::State),
            Binary::NotEqual if is_owner(left, right) => guarded(Guard::State, Guard::Owner),
            // An order of what is replied and what is passed says nothing about who owns the lock.
            Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual
                if is_owner(left, right) =>
            {
                guarded(Guard::None, Guard::None)
            }
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessOrEqual
            | Binary::Greater
            | Binary::GreaterOrEqual
            | Binary::Concat
            | Binary::Add
            | Binary::Subtract
            | Binary::Multiply
            | Binary::Divide
            | Binary::Modulo => plain,
        }
    }
}

/// Whether one side is replied and the other passed.
fn is_owner(left: Judged, right: Judged) -> bool {
    let is_passed = |side: Judged| !side.is_replied && !side.is_literal;
    left.is_replied && is_passed(right) || right.is_replied && is_passed(left)
}
