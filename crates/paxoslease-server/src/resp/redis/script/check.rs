//! Checks that a script does only what a lock does, and finds its class.
//!
//! The check follows which locals hold what a command replied, and which conditions a command
//! depends on. It knows no values, so it is a judgement about the text: the store still sees and
//! may refuse each command of a run. It looks at each node of the tree once, and twice in loops.

use super::guard::{Guard, Judged};
use super::syntax::{Binary, Block, Call, Command, Expr, Function, StatementKind, Target, Unary};
use super::{Class, Unrecognised};

/// Keys of all commands that the text has, however often these run.
const CALLED_MAX: usize = 64;
/// Expressions among them that differ.
const KEYS_MAX: usize = 16;
/// Nodes of such an expression. Expressions are compared with each other.
const KEY_NODES_MAX: usize = 32;

/// A command on a key, as the text has it.
struct Seen {
    command: Command,
    /// The place of its expression in [`Checker::keys`].
    key: usize,
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

/// What is known of a local.
#[derive(Clone, Copy, Default)]
struct Slot<'a> {
    /// What it is assigned once and for all.
    alias: Alias<'a>,
    /// It holds what a command replied, or did once.
    is_replied: bool,
    /// It differs between rounds of a loop.
    is_varying: bool,
}

#[derive(Clone, Copy, Default)]
enum Alias<'a> {
    #[default]
    Unassigned,
    Once(&'a Expr),
    /// It is assigned several times, and stands for nothing but itself.
    Several,
}

struct Checker<'a> {
    slots: Vec<Slot<'a>>,
    seen: Vec<Seen>,
    /// Expressions of keys that differ.
    keys: Vec<&'a Expr>,
    loops: usize,
}

pub(super) fn check(block: &Block, slots: usize) -> Result<Class, Unrecognised> {
    let slots = vec![Slot::default(); slots];
    let mut checker = Checker { slots, seen: Vec::new(), keys: Vec::new(), loops: 0 };
    checker.block(block, Guard::None)?;
    checker.class()
}

impl<'a> Checker<'a> {
    /// Returns the guard of what follows the block.
    fn block(&mut self, block: &'a Block, mut guard: Guard) -> Result<Guard, Unrecognised> {
        for statement in block {
            guard = self.statement(&statement.kind, guard)?;
        }
        Ok(guard)
    }

    fn statement(&mut self, kind: &'a StatementKind, guard: Guard) -> Result<Guard, Unrecognised> {
        match kind {
            StatementKind::Assign(targets, values) => self.assign(targets, values, guard)?,
            StatementKind::Call(call) => drop(self.expr(call, guard)?),
            StatementKind::If(arms, otherwise) => return self.branches(arms, otherwise, guard),
            StatementKind::Do(block) => return self.block(block, guard),
            StatementKind::Count { slot, from, to, step, body } => {
                for limit in [Some(from), Some(to), step.as_ref()].into_iter().flatten() {
                    self.expr(limit, guard)?;
                }
                self.slots[*slot].is_varying = true;
                return self.iteration(body, guard);
            }
            StatementKind::Each { key, value, table, body, .. } => {
                let table = self.expr(table, guard)?;
                for slot in [Some(*key), *value].into_iter().flatten() {
                    self.slots[slot].is_varying = true;
                    self.slots[slot].is_replied |= table.is_replied;
                }
                return self.iteration(body, guard);
            }
            StatementKind::Return(Some(value)) => drop(self.expr(value, guard)?),
            StatementKind::Return(None) | StatementKind::Break => {}
        }
        Ok(guard)
    }

    fn assign(
        &mut self,
        targets: &'a [Target],
        values: &'a [Expr],
        guard: Guard,
    ) -> Result<(), Unrecognised> {
        let mut judged = Vec::new();
        for value in values {
            judged.push(self.expr(value, guard)?);
        }
        for target in targets {
            if let Target::Field(table, key) = target {
                self.expr(table, guard)?;
                self.expr(key, guard)?;
            }
        }
        let is_any_replied = judged.iter().any(|value| value.is_replied);
        for (at, target) in targets.iter().enumerate() {
            let value = judged.get(at).copied().unwrap_or_default();
            let is_paired = targets.len() == values.len();
            let is_replied = if is_paired { value.is_replied } else { is_any_replied };
            let slot = match target {
                Target::Slot(slot) => *slot,
                Target::Field(Expr::Local(slot), _) => *slot,
                Target::Field(..) => continue,
            };
            let alias = match (target, self.slots[slot].alias) {
                (Target::Slot(_), Alias::Unassigned) => {
                    Alias::Once(self.resolved(values.get(at).unwrap_or(&Expr::Nil)))
                }
                _ => Alias::Several,
            };
            let slot = &mut self.slots[slot];
            // What is assigned under a condition tells the condition.
            slot.is_replied |= is_replied || guard != Guard::None;
            slot.is_varying |= value.is_varying;
            slot.alias = alias;
        }
        Ok(())
    }

    fn branches(
        &mut self,
        arms: &'a [(Expr, Block)],
        otherwise: &'a Block,
        outer: Guard,
    ) -> Result<Guard, Unrecognised> {
        let mut guard = outer;
        let mut leaves = false;
        // The weakest guard of the ways that go on behind `end`.
        let mut behind = Guard::Owner;
        for (condition, block) in arms {
            let condition = self.expr(condition, guard)?;
            let at_end = self.block(block, guard.max(condition.if_true))?;
            if returns(block) {
                leaves = true;
            } else {
                behind = behind.min(at_end);
            }
            guard = guard.max(condition.if_false);
        }
        let at_end = self.block(otherwise, guard)?;
        if returns(otherwise) {
            leaves = true;
        } else {
            behind = behind.min(at_end);
        }
        Ok(if leaves { outer.max(behind) } else { outer })
    }

    fn iteration(&mut self, body: &'a Block, guard: Guard) -> Result<Guard, Unrecognised> {
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

    /// Judges an expression by its parts, and notes the commands in it.
    fn expr(&mut self, expr: &'a Expr, guard: Guard) -> Result<Judged, Unrecognised> {
        Ok(match expr {
            Expr::Nil | Expr::Bool(_) | Expr::Number(_) | Expr::Text(_) => Judged::LITERAL,
            Expr::Keys | Expr::Argv => Judged::PASSED,
            Expr::Local(slot) => {
                let Slot { is_replied, is_varying, .. } = self.slots[*slot];
                Judged::of(is_replied, is_varying)
            }
            Expr::Single(inner) => self.expr(inner, guard)?,
            Expr::Unary(Unary::Not, inner) => self.expr(inner, guard)?.negated(),
            Expr::Unary(Unary::Minus | Unary::Length, inner) => {
                let inner = self.expr(inner, guard)?;
                let is_literal = inner.is_literal;
                Judged { is_literal, ..Judged::of(inner.is_replied, inner.is_varying) }
            }
            Expr::Binary(operator, left, right) => {
                let left = self.expr(left, guard)?;
                let then = match operator {
                    Binary::And => left.if_true,
                    Binary::Or => left.if_false,
                    _ => Guard::None,
                };
                let right = self.expr(right, guard.max(then))?;
                Judged::of_operator(*operator, left, right)
            }
            Expr::Redis(call) => {
                let mut args = Vec::new();
                for arg in &call.args {
                    args.push(self.expr(arg, guard)?);
                }
                let is_key_varying = args.first().is_some_and(|key| key.is_varying);
                self.call(call, guard, is_key_varying)?;
                let is_varying = args.iter().any(|arg| arg.is_varying);
                Judged::of(!call.command.is_signal(), is_varying)
            }
            Expr::Index(..) | Expr::Table(_) | Expr::Library(..) => {
                let mut is_replied = false;
                let mut is_varying = false;
                for part in expr.parts() {
                    let part = self.expr(part, guard)?;
                    is_replied |= part.is_replied;
                    is_varying |= part.is_varying;
                }
                Judged::of(is_replied, is_varying)
            }
        })
    }

    fn call(
        &mut self,
        call: &'a Call,
        guard: Guard,
        is_key_varying: bool,
    ) -> Result<(), Unrecognised> {
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
        let many = is_key_varying || takes_many && !is_one;
        let keys = if takes_many { &call.args[..] } else { &call.args[..1] };
        for key in keys {
            let key = self.key(key, call.line)?;
            if self.seen.len() == CALLED_MAX {
                let reason = format!("there are commands on more than {CALLED_MAX} keys");
                return Err(Unrecognised::new(call.line, reason));
            }
            self.seen.push(Seen { command: call.command, key, guard, many, when });
        }
        Ok(())
    }

    /// The place of the expression of a key among those that differ.
    fn key(&mut self, expr: &'a Expr, line: u32) -> Result<usize, Unrecognised> {
        let expr = self.resolved(expr);
        if expr.nodes(KEY_NODES_MAX) > KEY_NODES_MAX {
            let reason = format!("the expression of a key has more than {KEY_NODES_MAX} parts");
            return Err(Unrecognised::new(line, reason));
        }
        if let Some(known) = self.keys.iter().position(|known| *known == expr) {
            return Ok(known);
        }
        if self.keys.len() == KEYS_MAX {
            let reason = format!("the script is about more than {KEYS_MAX} keys by name");
            return Err(Unrecognised::new(line, reason));
        }
        self.keys.push(expr);
        Ok(self.keys.len() - 1)
    }

    /// The expression behind the names that locals give it.
    fn resolved(&self, expr: &'a Expr) -> &'a Expr {
        let Expr::Local(slot) = expr else { return expr };
        match self.slots[*slot] {
            Slot { alias: Alias::Once(alias), is_varying: false, .. } => alias,
            _ => expr,
        }
    }

    fn class(&self) -> Result<Class, Unrecognised> {
        let is_list = |seen: &Seen| seen.command.is_signal() && seen.command != Command::Publish;
        let lists: Vec<usize> =
            self.seen.iter().filter(|seen| is_list(seen)).map(|seen| seen.key).collect();
        let mut locks: Vec<&Seen> = Vec::new();
        for seen in self.seen.iter().filter(|seen| !seen.command.is_signal()) {
            use Command::{Del, Expire, Pexpire, Unlink};
            match (lists.contains(&seen.key), seen.command) {
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
        let mut keys = locks.iter().map(|seen| seen.key).filter(|key| !is_unpack(self.keys[*key]));
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
