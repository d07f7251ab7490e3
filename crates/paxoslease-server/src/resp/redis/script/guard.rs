//! What the conditions of a script say about a lock.

use super::syntax::{Binary, Expr, Unary};

/// What must hold where a command stands. A later one says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Guard {
    None,
    /// Something about what the store holds.
    State,
    /// The store holds a value that the caller passes: the caller owns the lock.
    Owner,
}

/// Which locals hold what a command replied.
pub(super) struct Guards {
    replied: Vec<bool>,
}

impl Guards {
    pub(super) fn new(slots: usize) -> Self {
        Self { replied: vec![false; slots] }
    }

    /// A local that held a reply once counts as holding one.
    pub(super) fn assign(&mut self, slot: usize, replied: bool) {
        self.replied[slot] |= replied;
    }

    /// Whether a value depends on what a command replied.
    pub(super) fn is_replied(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Redis(call) => !call.command.is_signal(),
            Expr::Local(slot) => self.replied[*slot],
            _ => expr.parts().into_iter().any(|part| self.is_replied(part)),
        }
    }

    /// What a condition guards: where it is true, and where it is false.
    pub(super) fn of(&self, condition: &Expr) -> (Guard, Guard) {
        match condition {
            Expr::Single(inner) => self.of(inner),
            Expr::Unary(Unary::Not, inner) => {
                let (if_true, if_false) = self.of(inner);
                (if_false, if_true)
            }
            Expr::Binary(Binary::And, left, right) => {
                let (left, right) = (self.of(left), self.of(right));
                (left.0.max(right.0), left.1.min(right.1))
            }
            Expr::Binary(Binary::Or, left, right) => {
                let (left, right) = (self.of(left), self.of(right));
                (left.0.min(right.0), left.1.max(right.1))
            }
            Expr::Binary(Binary::Equal, left, right) if self.is_owner(left, right) => {
                (Guard::Owner, Guard::State)
            }
            Expr::Binary(Binary::NotEqual, left, right) if self.is_owner(left, right) => {
                (Guard::State, Guard::Owner)
            }
            // An order of what is replied and what is passed says nothing about who owns the lock.
            Expr::Binary(
                Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual,
                left,
                right,
            ) if self.is_owner(left, right) => (Guard::None, Guard::None),
            _ => (self.state(condition), self.state(condition)),
        }
    }

    fn state(&self, condition: &Expr) -> Guard {
        if self.is_replied(condition) { Guard::State } else { Guard::None }
    }

    /// Whether one side is replied and the other passed.
    fn is_owner(&self, left: &Expr, right: &Expr) -> bool {
        let is_passed = |expr: &Expr| !self.is_replied(expr) && !is_literal(expr);
        self.is_replied(left) && is_passed(right) || self.is_replied(right) && is_passed(left)
    }
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Nil | Expr::Bool(_) | Expr::Number(_) | Expr::Text(_) => true,
        Expr::Unary(_, inner) | Expr::Single(inner) => is_literal(inner),
        _ => false,
    }
}
