//! Runs a script. Steps and bytes of a run are bounded, so a script ends whatever it says.
//!
//! Everything whose time depends on the script or its arguments counts its steps before it is done:
//! values, bytes that are read or copied, places of tables that are moved, words of commands.

use std::borrow::Cow;

use super::number;
use super::syntax::{Block, Call, Expr, Function, StatementKind, Target};
use super::value::{Table, TableId, Value};
use super::{Fault, Reply, Run, Store};
use crate::resp::steps::STEPS_PER_TURN;

/// The steps of a run.
const STEPS_MAX: usize = STEPS_PER_TURN;
/// Of a statement, an expression or a value.
const VALUE_STEPS: usize = 16;
/// Of a number that is written as text.
pub(super) const WRITTEN_STEPS: usize = 128;
/// Of a command, and of each of its words.
const CALL_STEPS: usize = 256;
const WORD_STEPS: usize = 64;
/// Bytes that are compared or copied in one step. To read a number takes a step for each byte.
const BYTES_PER_STEP: usize = 4;
/// Bytes of the strings that a run makes.
const BYTES_MAX: usize = 256 * 1024;
/// Tables in tables of a reply.
const REPLY_DEPTH_MAX: usize = 16;

/// As Redis 7 says it. For `pcall` this is a value like the error of a command.
const BAD_ARGUMENT: &[u8] = b"ERR Command arguments must be strings or integers";

/// Why a run ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Fault(Fault),
    /// A command failed that `redis.call` called.
    Raised(Vec<u8>),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

enum Flow {
    Next,
    Break,
    Return(Value),
}

pub(super) struct Machine<'a> {
    store: &'a mut dyn Store,
    slots: Vec<Value>,
    tables: Vec<Table>,
    steps: usize,
    bytes: usize,
    /// Of the statement that runs.
    line: u32,
}

const KEYS: TableId = TableId(0);
const ARGV: TableId = TableId(1);

impl<'a> Machine<'a> {
    pub(super) fn new(
        slots: usize,
        keys: &[&[u8]],
        args: &[&[u8]],
        store: &'a mut dyn Store,
    ) -> Self {
        let table =
            |texts: &[&[u8]]| Table::of(texts.iter().map(|text| Value::text(text)).collect());
        let tables = vec![table(keys), table(args)];
        let passed = keys.iter().chain(args).map(|text| VALUE_STEPS + text.len() / BYTES_PER_STEP);
        let steps = passed.sum();
        Self { store, slots: vec![Value::Nil; slots], tables, steps, bytes: 0, line: 0 }
    }

    pub(super) fn run(mut self, block: &Block) -> Run {
        let outcome = self.outcome(block);
        Run { outcome, steps: self.steps }
    }

    fn outcome(&mut self, block: &Block) -> Result<Reply, Fault> {
        let value = match self.block(block) {
            Ok(Flow::Return(value)) => value,
            Ok(Flow::Next | Flow::Break) => Value::Nil,
            Err(Stop::Raised(error)) => return Ok(Reply::Error(error)),
            Err(Stop::Fault(fault)) => return Err(fault),
        };
        match self.reply(&value, 0) {
            Ok(reply) => Ok(reply),
            Err(Stop::Raised(error)) => Ok(Reply::Error(error)),
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }

    /// The steps of a value.
    pub(super) fn step(&mut self) -> Result<(), Stop> {
        self.spend(VALUE_STEPS)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps += steps;
        if self.steps > STEPS_MAX { Err(Fault::Limit.into()) } else { Ok(()) }
    }

    /// The steps of bytes that are compared or copied.
    pub(super) fn touch(&mut self, bytes: usize) -> Result<(), Stop> {
        self.spend(bytes / BYTES_PER_STEP)
    }

    /// The steps of a key of a table.
    fn touch_key(&mut self, key: &Value) -> Result<(), Stop> {
        match key {
            Value::Text(text) => self.touch(text.len()),
            Value::Nil | Value::Bool(_) | Value::Number(_) | Value::Table(_) => Ok(()),
        }
    }

    /// A number, also one that is written in a string.
    pub(super) fn read_number(&mut self, value: &Value) -> Result<Option<f64>, Stop> {
        if let Value::Text(text) = value {
            self.spend(text.len())?;
        }
        Ok(value.to_number())
    }

    /// A new string.
    pub(super) fn text(&mut self, bytes: &[u8]) -> Result<Value, Stop> {
        self.touch(bytes.len())?;
        self.bytes += bytes.len();
        if self.bytes > BYTES_MAX {
            return Err(Fault::Limit.into());
        }
        Ok(Value::text(bytes))
    }

    pub(super) fn new_table(&mut self, table: Table) -> Value {
        self.tables.push(table);
        Value::Table(TableId(self.tables.len() - 1))
    }

    pub(super) fn table(&mut self, value: &Value) -> Result<&mut Table, Stop> {
        match value {
            Value::Table(id) => Ok(&mut self.tables[id.0]),
            _ => Err(self.fault(format!("a table is needed, not a {} value", value.type_name()))),
        }
    }

    pub(super) fn fault(&self, reason: impl AsRef<str>) -> Stop {
        Stop::Fault(Fault::Type(format!("line {}: {}", self.line, reason.as_ref())))
    }

    fn block(&mut self, block: &Block) -> Result<Flow, Stop> {
        for statement in block {
            self.step()?;
            self.line = statement.line;
            match self.statement(&statement.kind)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &StatementKind) -> Result<Flow, Stop> {
        match statement {
            StatementKind::Assign(targets, values) => {
                let values = self.values(values)?;
                self.assign(targets, values)?;
            }
            StatementKind::Call(call) => {
                self.values(std::slice::from_ref(call))?;
            }
            StatementKind::If(arms, otherwise) => {
                for (condition, block) in arms {
                    if self.value(condition)?.is_true() {
                        return self.block(block);
                    }
                }
                return self.block(otherwise);
            }
            StatementKind::Do(block) => return self.block(block),
            StatementKind::Count { slot, from, to, step, body } => {
                let from = self.limit(from)?;
                let to = self.limit(to)?;
                let step = step.as_ref().map_or(Ok(1.0), |step| self.limit(step))?;
                return self.count(*slot, (from, to, step), body);
            }
            StatementKind::Each { key, value, table, in_order, body } => {
                let table = self.value(table)?;
                return self.each((*key, *value), &table, *in_order, body);
            }
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Return(None) => return Ok(Flow::Return(Value::Nil)),
            StatementKind::Return(Some(value)) => {
                let mut values = self.values(std::slice::from_ref(value))?.into_iter();
                return Ok(Flow::Return(values.next().unwrap_or(Value::Nil)));
            }
        }
        Ok(Flow::Next)
    }

    fn assign(&mut self, targets: &[Target], values: Vec<Value>) -> Result<(), Stop> {
        let mut values = values.into_iter();
        for target in targets {
            let value = values.next().unwrap_or(Value::Nil);
            match target {
                Target::Slot(slot) => self.slots[*slot] = value,
                Target::Field(table, key) => {
                    let table = self.value(table)?;
                    let key = self.value(key)?;
                    self.touch_key(&key)?;
                    if !self.table(&table)?.set(&key, value) {
                        return Err(self.fault(format!("{} is not an index", key.type_name())));
                    }
                }
            }
        }
        Ok(())
    }

    fn limit(&mut self, expr: &Expr) -> Result<f64, Stop> {
        let value = self.value(expr)?;
        let number = self.read_number(&value)?;
        number.ok_or_else(|| self.fault("the limits of `for` must be numbers"))
    }

    fn count(&mut self, slot: usize, range: (f64, f64, f64), body: &Block) -> Result<Flow, Stop> {
        let (mut at, to, step) = range;
        while if step > 0.0 { at <= to } else { to <= at } {
            self.step()?;
            self.slots[slot] = Value::Number(at);
            match self.block(body)? {
                Flow::Next => {}
                Flow::Break => break,
                flow @ Flow::Return(_) => return Ok(flow),
            }
            at += step;
        }
        Ok(Flow::Next)
    }

    fn each(
        &mut self,
        (key_slot, value_slot): (usize, Option<usize>),
        table: &Value,
        in_order: bool,
        body: &Block,
    ) -> Result<Flow, Stop> {
        let count = self.table(table)?.count();
        self.spend(count * VALUE_STEPS)?;
        let keys = self.table(table)?.keys();
        for key in keys {
            self.step()?;
            self.touch_key(&key)?;
            let value = self.table(table)?.get(&key);
            if value == Value::Nil {
                if in_order {
                    break;
                }
                continue;
            }
            if in_order && !matches!(key, Value::Number(_)) {
                break;
            }
            self.slots[key_slot] = key;
            if let Some(slot) = value_slot {
                self.slots[slot] = value;
            }
            match self.block(body)? {
                Flow::Next => {}
                Flow::Break => break,
                flow @ Flow::Return(_) => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// The values of a list. Only the last expression may have other than one value.
    pub(super) fn values(&mut self, exprs: &[Expr]) -> Result<Vec<Value>, Stop> {
        let mut values = Vec::new();
        for (at, expr) in exprs.iter().enumerate() {
            match expr {
                Expr::Library(Function::Unpack, args) if at + 1 == exprs.len() => {
                    values.extend(self.unpack(args)?);
                }
                _ => values.push(self.value(expr)?),
            }
        }
        Ok(values)
    }

    pub(super) fn value(&mut self, expr: &Expr) -> Result<Value, Stop> {
        self.step()?;
        match expr {
            Expr::Nil => Ok(Value::Nil),
            Expr::Bool(value) => Ok(Value::Bool(*value)),
            Expr::Number(number) => Ok(Value::Number(*number)),
            Expr::Text(text) => Ok(Value::Text(text.clone())),
            Expr::Keys => Ok(Value::Table(KEYS)),
            Expr::Argv => Ok(Value::Table(ARGV)),
            Expr::Local(slot) => Ok(self.slots[*slot].clone()),
            Expr::Single(inner) => self.value(inner),
            Expr::Index(table, key) => {
                let table = self.value(table)?;
                let key = self.value(key)?;
                self.touch_key(&key)?;
                Ok(self.table(&table)?.get(&key))
            }
            Expr::Unary(operator, operand) => {
                let operand = self.value(operand)?;
                self.unary(*operator, &operand)
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::Table(fields) => self.constructor(fields),
            Expr::Library(Function::Unpack, args) => {
                Ok(self.unpack(args)?.into_iter().next().unwrap_or(Value::Nil))
            }
            Expr::Library(function, args) => {
                let args = self.values(args)?;
                self.library(*function, &args)
            }
            Expr::Redis(call) => self.redis(call),
        }
    }

    fn constructor(&mut self, fields: &[(Option<Expr>, Expr)]) -> Result<Value, Stop> {
        let mut sequence = Vec::new();
        let mut others = Vec::new();
        for (at, (key, value)) in fields.iter().enumerate() {
            match key {
                Some(key) => others.push((self.value(key)?, self.value(value)?)),
                None if at + 1 == fields.len() => {
                    sequence.extend(self.values(std::slice::from_ref(value))?);
                }
                None => sequence.push(self.value(value)?),
            }
        }
        let mut table = Table::of(sequence);
        for (key, value) in others {
            self.touch_key(&key)?;
            if !table.set(&key, value) {
                return Err(self.fault(format!("{} is not an index", key.type_name())));
            }
        }
        Ok(self.new_table(table))
    }

    fn redis(&mut self, call: &Call) -> Result<Value, Stop> {
        let args = self.values(&call.args)?;
        self.line = call.line;
        self.spend(CALL_STEPS)?;
        for arg in &args {
            let steps = match arg {
                Value::Number(_) => WRITTEN_STEPS,
                Value::Text(text) => text.len() / BYTES_PER_STEP,
                Value::Nil | Value::Bool(_) | Value::Table(_) => 0,
            };
            self.spend(WORD_STEPS + steps)?;
        }
        let mut words: Vec<Cow<'_, [u8]>> = vec![call.command.name().as_bytes().into()];
        for arg in &args {
            words.push(match arg {
                Value::Text(text) => Cow::Borrowed(text),
                Value::Number(number) => number::pass(*number).into_bytes().into(),
                Value::Nil | Value::Bool(_) | Value::Table(_) => {
                    return self.replied(Reply::Error(BAD_ARGUMENT.to_vec()), call.protected);
                }
            });
        }
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let reply = self.store.call(&words)?;
        self.replied(reply, call.protected)
    }

    fn replied(&mut self, reply: Reply, protected: bool) -> Result<Value, Stop> {
        match reply {
            Reply::Error(error) if !protected => Err(Stop::Raised(error)),
            reply => self.received(&reply, 0),
        }
    }

    /// The value of a command's reply.
    fn received(&mut self, reply: &Reply, depth: usize) -> Result<Value, Stop> {
        self.step()?;
        if depth > REPLY_DEPTH_MAX {
            return Err(Fault::Limit.into());
        }
        match reply {
            Reply::Nil => Ok(Value::Bool(false)),
            Reply::Integer(number) => Ok(Value::Number(*number as f64)),
            Reply::Bulk(bytes) => self.text(bytes),
            Reply::Status(bytes) => self.marked("ok", bytes),
            Reply::Error(bytes) => self.marked("err", bytes),
            Reply::Array(items) => {
                let mut values = Vec::new();
                for item in items {
                    values.push(self.received(item, depth + 1)?);
                }
                Ok(self.new_table(Table::of(values)))
            }
        }
    }

    /// A table with one field: `{ok = ..}` or `{err = ..}`.
    pub(super) fn marked(&mut self, name: &str, bytes: &[u8]) -> Result<Value, Stop> {
        let text = self.text(bytes)?;
        let mut table = Table::default();
        table.set(&Value::text(name.as_bytes()), text);
        Ok(self.new_table(table))
    }

    /// The reply that a returned value is. A table that several tables share is written several
    /// times, so this counts steps and bytes as well.
    fn reply(&mut self, value: &Value, depth: usize) -> Result<Reply, Stop> {
        self.step()?;
        match value {
            Value::Nil | Value::Bool(false) => Ok(Reply::Nil),
            Value::Bool(true) => Ok(Reply::Integer(1)),
            Value::Number(number) => Ok(Reply::Integer(number::truncate(*number))),
            Value::Text(text) => {
                self.text(text)?;
                Ok(Reply::Bulk(text.to_vec()))
            }
            Value::Table(_) if depth == REPLY_DEPTH_MAX => Err(Fault::Limit.into()),
            Value::Table(id) => {
                let table = &self.tables[id.0];
                if let Value::Text(error) = table.field("err") {
                    return Ok(Reply::Error(error.to_vec()));
                }
                if let Value::Text(status) = table.field("ok") {
                    return Ok(Reply::Status(status.to_vec()));
                }
                let mut items = Vec::new();
                for position in 1..=table.len() {
                    let item = self.tables[id.0].at(position);
                    if item == Value::Nil {
                        break;
                    }
                    items.push(self.reply(&item, depth + 1)?);
                }
                Ok(Reply::Array(items))
            }
        }
    }
}
