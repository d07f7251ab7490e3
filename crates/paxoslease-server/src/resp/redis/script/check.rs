//! Checks that a script does only what a lock does, and finds its class.
//!
//! The check follows which locals hold what a command replied, and which conditions a command
//! depends on. It knows no values, so it is a judgement about the text: the store still sees and
//! may refuse each command of a run.

use super::guard::{Guard, Guards};
use super::syntax::{Block, Call, Command, Expr, Function, StatementKind, Target};
use super::{Class, Unrecognised};

/// A command on a key, as the text has it.
struct Seen {
    command: Command,
    key: Expr,
    guard: Guard,
    /// The command or its key stands for many keys.
    many: bool,
    /// Of SET: when it sets.
    when: When,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Absent,
    Present,
    /// An option is not a literal.
    Unknown,
}

struct Checker {
    guards: Guards,
    seen: Vec<Seen>,
    /// What a slot is assigned once and for all. None before an assignment.
    aliases: Vec<Option<Expr>>,
    /// Slots that differ between rounds of a loop.
    varying: Vec<bool>,
    loops: usize,
}

pub(super) fn check(block: &Block, slots: usize) -> Result<Class, Unrecognised> {
    let mut checker = Checker {
        guards: Guards::new(slots),
        seen: Vec::new(),
        aliases: vec![None; slots],
        varying: vec![false; slots],
        loops: 0,
    };
    checker.block(block, Guard::None)?;
    checker.class()
}

impl Checker {
    /// Returns the guard of what follows the block.
    fn block(&mut self, block: &Block, mut guard: Guard) -> Result<Guard, Unrecognised> {
        for statement in block {
            guard = self.statement(&statement.kind, guard)?;
        }
        Ok(guard)
    }

    fn statement(&mut self, kind: &StatementKind, guard: Guard) -> Result<Guard, Unrecognised> {
        match kind {
            StatementKind::Assign(targets, values) => {
                for value in values {
                    self.expr(value, guard)?;
                }
                self.assign(targets, values, guard);
            }
            StatementKind::Call(call) => self.expr(call, guard)?,
            StatementKind::If(arms, otherwise) => return self.branches(arms, otherwise, guard),
            StatementKind::Do(block) => return self.block(block, guard),
            StatementKind::Count { slot, from, to, step, body } => {
                for limit in [Some(from), Some(to), step.as_ref()].into_iter().flatten() {
                    self.expr(limit, guard)?;
                }
                self.varying[*slot] = true;
                return self.iteration(body, guard);
            }
            StatementKind::Each { key, value, table, body, .. } => {
                self.expr(table, guard)?;
                let replied = self.guards.is_replied(table);
                for slot in [Some(*key), *value].into_iter().flatten() {
                    self.varying[slot] = true;
                    self.guards.assign(slot, replied);
                }
                return self.iteration(body, guard);
            }
            StatementKind::Return(Some(value)) => self.expr(value, guard)?,
            StatementKind::Return(None) | StatementKind::Break => {}
        }
        Ok(guard)
    }

    fn assign(&mut self, targets: &[Target], values: &[Expr], guard: Guard) {
        let any_replied = values.iter().any(|value| self.guards.is_replied(value));
        for (at, target) in targets.iter().enumerate() {
            let value = values.get(at);
            let replied = match value {
                Some(value) if targets.len() == values.len() => self.guards.is_replied(value),
                _ => any_replied,
            };
            let slot = match target {
                Target::Slot(slot) => *slot,
                Target::Field(Expr::Local(slot), _) => *slot,
                Target::Field(..) => continue,
            };
            // What is assigned under a condition tells the condition.
            self.guards.assign(slot, replied || guard != Guard::None);
            let value = value.unwrap_or(&Expr::Nil);
            self.varying[slot] |= self.is_varying(value);
            let first = self.aliases[slot].is_none() && matches!(target, Target::Slot(_));
            let alias = if first { self.resolved(value) } else { Expr::Local(slot) };
            self.aliases[slot] = Some(alias);
        }
    }

    fn branches(
        &mut self,
        arms: &[(Expr, Block)],
        otherwise: &Block,
        outer: Guard,
    ) -> Result<Guard, Unrecognised> {
        let mut guard = outer;
        let mut leaves = false;
        // The weakest guard of the ways that go on behind `end`.
        let mut behind = Guard::Owner;
        for (condition, block) in arms {
            self.expr(condition, guard)?;
            let (if_true, if_false) = self.guards.of(condition);
            let at_end = self.block(block, guard.max(if_true))?;
            if returns(block) {
                leaves = true;
            } else {
                behind = behind.min(at_end);
            }
            guard = guard.max(if_false);
        }
        let at_end = self.block(otherwise, guard)?;
        if returns(otherwise) {
            leaves = true;
        } else {
            behind = behind.min(at_end);
        }
        Ok(if leaves { outer.max(behind) } else { outer })
    }

    fn iteration(&mut self, body: &Block, guard: Guard) -> Result<Guard, Unrecognised> {
        self.loops += 1;
        if self.loops == 1 {
            // The first round finds the locals that a later round sees. One more round is enough
            // for inner loops, too, and rounds must not multiply.
            let seen = self.seen.len();
            self.block(body, guard)?;
            self.seen.truncate(seen);
        }
        let at_end = self.block(body, guard)?;
        self.loops -= 1;
        Ok(if contains_return(body) { guard.max(at_end) } else { guard })
    }

    fn expr(&mut self, expr: &Expr, guard: Guard) -> Result<(), Unrecognised> {
        use super::syntax::Binary::{And, Or};
        match expr {
            Expr::Binary(operator @ (And | Or), left, right) => {
                self.expr(left, guard)?;
                let (if_true, if_false) = self.guards.of(left);
                let then = if *operator == And { if_true } else { if_false };
                self.expr(right, guard.max(then))
            }
            Expr::Redis(call) => {
                for arg in &call.args {
                    self.expr(arg, guard)?;
                }
                self.call(call, guard)
            }
            _ => {
                for part in expr.parts() {
                    self.expr(part, guard)?;
                }
                Ok(())
            }
        }
    }

    fn call(&mut self, call: &Call, guard: Guard) -> Result<(), Unrecognised> {
        if call.command == Command::Select {
            return Ok(());
        }
        let Some(key) = call.args.first() else {
            let reason = format!("the command `{}` needs a key", call.command.name());
            return Err(Unrecognised::new(call.line, reason));
        };
        let takes_many = matches!(
            call.command,
            Command::Mget | Command::Del | Command::Unlink | Command::Exists
        );
        let is_one = call.args.len() == 1 && !is_unpack(key);
        let when = when(call);
        let is_set = matches!(call.command, Command::Set | Command::Setex | Command::Psetex);
        if is_set && when == When::Always && guard == Guard::None {
            let reason = format!("`{}` sets a key without a check of the key", call.command.name());
            return Err(Unrecognised::new(call.line, reason));
        }
        let many = self.is_varying(key) || takes_many && !is_one;
        let keys = if takes_many { &call.args[..] } else { &call.args[..1] };
        for key in keys {
            let key = self.resolved(key);
            self.seen.push(Seen { command: call.command, key, guard, many, when });
        }
        Ok(())
    }

    /// The expression behind the names that locals give it.
    fn resolved(&self, expr: &Expr) -> Expr {
        match expr {
            Expr::Local(slot) => match &self.aliases[*slot] {
                Some(alias) if !self.varying[*slot] => alias.clone(),
                _ => expr.clone(),
            },
            _ => expr.clone(),
        }
    }

    fn is_varying(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Local(slot) => self.varying[*slot],
            _ => expr.parts().into_iter().any(|part| self.is_varying(part)),
        }
    }

    fn class(&self) -> Result<Class, Unrecognised> {
        let is_list = |seen: &Seen| seen.command.is_signal() && seen.command != Command::Publish;
        let lists: Vec<&Expr> =
            self.seen.iter().filter(|seen| is_list(seen)).map(|seen| &seen.key).collect();
        let mut locks: Vec<&Seen> = Vec::new();
        for seen in self.seen.iter().filter(|seen| !seen.command.is_signal()) {
            use Command::{Del, Expire, Pexpire, Unlink};
            match (lists.contains(&&seen.key), seen.command) {
                (false, _) => locks.push(seen),
                (true, Del | Unlink | Expire | Pexpire) => {}
                (true, command) => {
                    let command = command.name();
                    let reason = format!("`{command}` is called on the key of a list");
                    return Err(Unrecognised::new(1, reason));
                }
            }
        }
        if locks.is_empty() {
            return Err(Unrecognised::new(1, "no command is about the key of a lock"));
        }
        // The key in `unpack(..)` of the arguments of SET is not known.
        let mut keys = locks.iter().map(|seen| &seen.key).filter(|key| !is_unpack(key));
        let first = keys.next();
        if locks.iter().any(|seen| seen.many) || keys.any(|key| Some(key) != first) {
            let all_read = locks.iter().all(|seen| seen.command.is_read());
            return Ok(if all_read { Class::Read } else { Class::Several });
        }
        Ok(class_of(&locks))
    }
}

/// The class of a script that is about one key.
fn class_of(locks: &[&Seen]) -> Class {
    use Command::{Del, Expire, Persist, Pexpire, Psetex, Set, Setex, Setnx, Unlink};
    let is_set = |seen: &&&Seen| matches!(seen.command, Set | Setex | Psetex | Setnx);
    let renews = |seen: &Seen| seen.guard == Guard::Owner || seen.when == When::Present;
    if locks.iter().filter(is_set).any(|seen| !renews(seen)) {
        return Class::Acquire;
    }
    let mut releases = locks.iter().filter(|seen| matches!(seen.command, Del | Unlink)).peekable();
    if releases.peek().is_some() {
        let is_owners = releases.any(|seen| seen.guard == Guard::Owner);
        return if is_owners { Class::Release } else { Class::ForcedRelease };
    }
    let extends = |seen: &&Seen| matches!(seen.command, Expire | Pexpire | Persist);
    if locks.iter().any(|seen| extends(seen) || is_set(&seen)) {
        Class::Extend
    } else {
        Class::Read
    }
}

fn is_unpack(expr: &Expr) -> bool {
    matches!(expr, Expr::Library(Function::Unpack, _))
}

/// When a command that sets a key does so.
fn when(call: &Call) -> When {
    if call.command == Command::Setnx {
        return When::Absent;
    }
    if call.command != Command::Set {
        return When::Always;
    }
    let mut options = call.args.iter().skip(2);
    while let Some(option) = options.next() {
        let Expr::Text(option) = option else { return When::Unknown };
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => return When::Absent,
            b"xx" => return When::Present,
            b"ex" | b"px" | b"exat" | b"pxat" => drop(options.next()),
            _ => {}
        }
    }
    if call.args.last().is_some_and(is_unpack) {
        return When::Unknown;
    }
    When::Always
}

/// Whether every way through the block returns.
fn returns(block: &Block) -> bool {
    match block.last().map(|statement| &statement.kind) {
        Some(StatementKind::Return(_)) => true,
        Some(StatementKind::If(arms, otherwise)) => {
            arms.iter().all(|(_, block)| returns(block)) && returns(otherwise)
        }
        Some(StatementKind::Do(block)) => returns(block),
        _ => false,
    }
}

fn contains_return(block: &Block) -> bool {
    block.iter().any(|statement| match &statement.kind {
        StatementKind::Return(_) => true,
        StatementKind::If(arms, otherwise) => {
            arms.iter().any(|(_, block)| contains_return(block)) || contains_return(otherwise)
        }
        StatementKind::Do(body)
        | StatementKind::Count { body, .. }
        | StatementKind::Each { body, .. } => contains_return(body),
        StatementKind::Assign(..) | StatementKind::Call(_) | StatementKind::Break => false,
    })
}
