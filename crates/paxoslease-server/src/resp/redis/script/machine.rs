//! Runs a script. All that takes time counts its steps, and these are bounded, so a run ends
//! whatever its script says, and takes little memory.

use std::borrow::Cow;
use std::sync::Arc;

use super::library::LIBRARY;
use super::parse::{Binary, Block, Expr, StatementKind, Unary};
use super::value::{Table, Value};
use super::{COMMANDS, Reply, Run, Store};
use crate::resp::steps::STEPS_PER_TURN;

/// The steps of a run. A byte that is compared, read or copied takes one.
const STEPS_MAX: usize = STEPS_PER_TURN;
/// The steps of a statement, an expression or a value.
const VALUE_STEPS: usize = 16;
/// The steps of a number that is written as text.
const WRITTEN_STEPS: usize = 128;
/// The steps of a command, and of each of its words.
const CALL_STEPS: usize = 256;
const WORD_STEPS: usize = 64;
/// Tables in tables of a reply.
const REPLY_DEPTH_MAX: usize = 16;

/// The bytes that an error shows of a command that is not known.
const COMMAND_SHOWN: usize = 32;

/// The error with which a run ends.
#[derive(Debug)]
pub(super) struct Stop(Vec<u8>);

enum Flow {
    Next,
    Break,
    Return(Value),
}

pub(super) struct Machine<'a> {
    store: &'a mut dyn Store,
    locals: Vec<Value>,
    tables: Vec<Table>,
    steps: usize,
    /// Of the statement that runs.
    line: u32,
}

impl<'a> Machine<'a> {
    /// The first two locals are KEYS and ARGV.
    pub(super) fn new(
        locals: usize,
        keys: &[&[u8]],
        args: &[&[u8]],
        store: &'a mut dyn Store,
    ) -> Self {
        let steps = keys.iter().chain(args).map(|text| VALUE_STEPS + text.len()).sum();
        let tables = [keys, args].map(|texts| {
            Table::of(texts.iter().map(|text| Value::Text(Arc::from(*text))).collect())
        });
        let mut locals = vec![Value::Nil; locals];
        (0..tables.len()).for_each(|table| locals[table] = Value::Table(table));
        Self { store, locals, tables: tables.into(), steps, line: 1 }
    }

    pub(super) fn run(mut self, block: &Block) -> Run {
        let reply = self.block(block).and_then(|flow| match flow {
            Flow::Return(value) => self.reply(&value, 0),
            Flow::Next | Flow::Break => Ok(Reply::Nil),
        });
        let reply = reply.unwrap_or_else(|Stop(error)| Reply::Error(error));
        Run { reply, steps: self.steps }
    }

    pub(super) fn error(&self, reason: impl AsRef<str>) -> Stop {
        Stop(format!("ERR line {}: {}", self.line, reason.as_ref()).into_bytes())
    }

    fn cannot(&self, what: &str, value: &Value) -> Stop {
        self.error(format!("attempt to {what} a {} value", value.type_name()))
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps += steps;
        if self.steps > STEPS_MAX {
            return Err(Stop(b"ERR the script takes too many steps".to_vec()));
        }
        Ok(())
    }

    pub(super) fn text(&mut self, bytes: &[u8]) -> Result<Value, Stop> {
        self.spend(bytes.len())?;
        Ok(Value::Text(Arc::from(bytes)))
    }

    /// A number, also one that is written in a string.
    pub(super) fn read_number(&mut self, value: &Value) -> Result<Option<f64>, Stop> {
        if let Value::Text(text) = value {
            self.spend(text.len())?;
        }
        Ok(value.to_number())
    }

    pub(super) fn number(&mut self, value: &Value) -> Result<f64, Stop> {
        let number = self.read_number(value)?;
        number.ok_or_else(|| self.cannot("perform arithmetic on", value))
    }

    /// A string, also of a number.
    pub(super) fn string(&mut self, value: &Value) -> Result<Arc<[u8]>, Stop> {
        if let Value::Number(_) = value {
            self.spend(WRITTEN_STEPS)?;
        }
        value.to_text().ok_or_else(|| match value {
            Value::Number(_) => {
                self.error("a number is written only if it is whole and has at most 14 digits")
            }
            value => self.cannot("concatenate", value),
        })
    }

    fn new_table(&mut self, table: Table) -> Value {
        self.tables.push(table);
        Value::Table(self.tables.len() - 1)
    }

    /// A table with one field: `{ok = ..}` or `{err = ..}`.
    pub(super) fn marked(&mut self, name: &str, bytes: &[u8]) -> Result<Value, Stop> {
        let text = self.text(bytes)?;
        let mut table = Table::default();
        table.set(&Value::from(name), text);
        Ok(self.new_table(table))
    }

    pub(super) fn table(&mut self, value: &Value) -> Result<&mut Table, Stop> {
        match value {
            Value::Table(table) => Ok(&mut self.tables[*table]),
            value => Err(self.cannot("index", value)),
        }
    }

    fn get(&mut self, table: &Value, key: &Value) -> Result<Value, Stop> {
        self.spend_on_key(key)?;
        Ok(self.table(table)?.get(key))
    }

    pub(super) fn set(&mut self, table: &Value, key: &Value, value: Value) -> Result<(), Stop> {
        self.spend_on_key(key)?;
        if self.table(table)?.set(key, value) {
            return Ok(());
        }
        Err(self.error("a key of a table is a string, or the next position of the list in it"))
    }

    fn spend_on_key(&mut self, key: &Value) -> Result<(), Stop> {
        if let Value::Text(name) = key { self.spend(name.len()) } else { Ok(()) }
    }

    fn block(&mut self, block: &Block) -> Result<Flow, Stop> {
        for statement in block {
            self.spend(VALUE_STEPS)?;
            self.line = statement.line;
            let flow = self.statement(&statement.kind)?;
            if !matches!(flow, Flow::Next) {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &StatementKind) -> Result<Flow, Stop> {
        match statement {
            StatementKind::Assign(targets, values) => {
                let mut values = self.values(values)?.into_iter();
                for target in targets {
                    self.assign(target, values.next().unwrap_or(Value::Nil))?;
                }
            }
            StatementKind::Call(call) => _ = self.value(call)?,
            StatementKind::If(arms) => {
                for (condition, block) in arms {
                    if self.value(condition)?.is_true() {
                        return self.block(block);
                    }
                }
            }
            StatementKind::Count { local, limits, body } => {
                return self.count(*local, limits, body);
            }
            StatementKind::Each { locals, table, in_order, body } => {
                let table = self.value(table)?;
                return self.each(locals, &table, *in_order, body);
            }
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Return(value) => return Ok(Flow::Return(self.value(value)?)),
        }
        Ok(Flow::Next)
    }

    fn assign(&mut self, target: &Expr, value: Value) -> Result<(), Stop> {
        match target {
            Expr::Local(local) => self.locals[*local] = value,
            Expr::Index(parts) => {
                let table = self.value(&parts[0])?;
                let key = self.value(&parts[1])?;
                self.set(&table, &key, value)?;
            }
            _ => unreachable!("the parser knows what can be assigned to"),
        }
        Ok(())
    }

    fn count(&mut self, local: usize, limits: &[Expr; 3], body: &Block) -> Result<Flow, Stop> {
        let mut numbers = [0.0; 3];
        for (number, limit) in numbers.iter_mut().zip(limits) {
            let limit = self.value(limit)?;
            *number = self.number(&limit)?;
        }
        let [mut at, to, step] = numbers;
        while if step > 0.0 { at <= to } else { to <= at } {
            self.spend(VALUE_STEPS)?;
            self.locals[local] = Value::Number(at);
            match self.block(body)? {
                Flow::Next => at += step,
                Flow::Break => break,
                flow @ Flow::Return(_) => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// `pairs` passes over nil, and `ipairs` ends there.
    fn each(
        &mut self,
        locals: &[usize],
        table: &Value,
        in_order: bool,
        body: &Block,
    ) -> Result<Flow, Stop> {
        let Table { items, fields } = self.table(table)?;
        if !fields.is_empty() {
            return Err(self.error("`for` runs only over lists"));
        }
        for position in 1..=items.len() {
            let key = Value::Number(position as f64);
            let value = self.get(table, &key)?;
            self.spend(VALUE_STEPS)?;
            if value == Value::Nil && in_order {
                break;
            }
            if value == Value::Nil {
                continue;
            }
            for (local, value) in locals.iter().zip([key, value]) {
                self.locals[*local] = value;
            }
            match self.block(body)? {
                Flow::Next => {}
                Flow::Break => break,
                flow @ Flow::Return(_) => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// The values of a list. Only a call at its end may have other than one value.
    fn values(&mut self, exprs: &[Expr]) -> Result<Vec<Value>, Stop> {
        let mut values = Vec::new();
        for (at, expr) in exprs.iter().enumerate() {
            match expr {
                Expr::Call(function, args) if at + 1 == exprs.len() => {
                    values.extend(self.call(function, args)?);
                }
                expr => values.push(self.value(expr)?),
            }
        }
        Ok(values)
    }

    fn value(&mut self, expr: &Expr) -> Result<Value, Stop> {
        self.spend(VALUE_STEPS)?;
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Local(local) => Ok(self.locals[*local].clone()),
            Expr::Index(parts) => {
                let table = self.value(&parts[0])?;
                let key = self.value(&parts[1])?;
                self.get(&table, &key)
            }
            Expr::Call(function, args) => {
                Ok(self.call(function, args)?.into_iter().next().unwrap_or(Value::Nil))
            }
            Expr::Unary(operator, operand) => {
                let operand = self.value(operand)?;
                self.unary(*operator, operand)
            }
            Expr::Binary(operator, operands) => self.binary(*operator, operands),
            Expr::Table(items, fields) => {
                let mut table = Table::of(self.values(items)?);
                for (name, field) in fields {
                    table.set(&Value::Text(Arc::clone(name)), self.value(field)?);
                }
                Ok(self.new_table(table))
            }
        }
    }

    fn call(&mut self, function: &Expr, args: &[Expr]) -> Result<Vec<Value>, Stop> {
        let function = self.value(function)?;
        let args = self.values(args)?;
        match function {
            Value::Function(place) => LIBRARY[place].1(self, &args),
            value => Err(self.cannot("call", &value)),
        }
    }

    fn unary(&mut self, operator: Unary, operand: Value) -> Result<Value, Stop> {
        Ok(match (operator, operand) {
            (Unary::Single, value) => value,
            (Unary::Not, value) => Value::Bool(!value.is_true()),
            (Unary::Minus, value) => Value::Number(-self.number(&value)?),
            (Unary::Length, Value::Text(text)) => Value::Number(text.len() as f64),
            (Unary::Length, value) => Value::Number(self.table(&value)?.items.len() as f64),
        })
    }

    fn binary(&mut self, operator: Binary, operands: &[Expr; 2]) -> Result<Value, Stop> {
        let left = self.value(&operands[0])?;
        match operator {
            Binary::And if !left.is_true() => return Ok(left),
            Binary::Or if left.is_true() => return Ok(left),
            _ => {}
        }
        let right = self.value(&operands[1])?;
        if let (Value::Text(left), Value::Text(right)) = (&left, &right) {
            self.spend(left.len().min(right.len()))?;
        }
        Ok(match operator {
            Binary::And | Binary::Or => right,
            Binary::Equal => Value::Bool(left == right),
            Binary::NotEqual => Value::Bool(left != right),
            Binary::Less | Binary::Greater | Binary::LessOrEqual | Binary::GreaterOrEqual => {
                let (Value::Number(left), Value::Number(right)) = (&left, &right) else {
                    let (left, right) = (left.type_name(), right.type_name());
                    return Err(self.error(format!("attempt to compare {left} with {right}")));
                };
                Value::Bool(match operator {
                    Binary::Less => left < right,
                    Binary::Greater => left > right,
                    Binary::LessOrEqual => left <= right,
                    _ => left >= right,
                })
            }
            Binary::Concat => {
                let left = self.string(&left)?;
                let right = self.string(&right)?;
                self.text(&[left, right].concat())?
            }
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Modulo => {
                let left = self.number(&left)?;
                let right = self.number(&right)?;
                Value::Number(match operator {
                    Binary::Add => left + right,
                    Binary::Subtract => left - right,
                    Binary::Multiply => left * right,
                    Binary::Divide => left / right,
                    _ => left - (left / right).floor() * right,
                })
            }
        })
    }

    /// `redis.call` and `redis.pcall`. If the call is protected, an error of the command is a
    /// value. An unknown command ends the run in any case.
    pub(super) fn command(&mut self, args: &[Value], is_protected: bool) -> Result<Value, Stop> {
        self.spend(CALL_STEPS)?;
        let mut words = Vec::new();
        for arg in args {
            self.spend(WORD_STEPS)?;
            let word = match arg {
                Value::Text(text) => Cow::Borrowed(&**text),
                arg => Cow::Owned(self.string(arg)?.to_vec()),
            };
            self.spend(word.len())?;
            words.push(word);
        }
        let name = words.first().map_or(b"".as_slice(), |name| name);
        if !COMMANDS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            let name = name[..name.len().min(COMMAND_SHOWN)].escape_ascii();
            return Err(self.error(format!("the command `{name}` is not known in a script")));
        }
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        match self.store.call(&words) {
            Reply::Error(error) if !is_protected => Err(Stop(error)),
            reply => self.received(&reply),
        }
    }

    /// The value of a command's reply.
    fn received(&mut self, reply: &Reply) -> Result<Value, Stop> {
        self.spend(VALUE_STEPS)?;
        match reply {
            Reply::Nil => Ok(Value::Bool(false)),
            Reply::Integer(number) => Ok(Value::Number(*number as f64)),
            Reply::Bulk(bytes) => self.text(bytes),
            Reply::Status(bytes) => self.marked("ok", bytes),
            Reply::Error(bytes) => self.marked("err", bytes),
            Reply::Array(items) => {
                let items = items.iter().map(|item| self.received(item));
                let items = items.collect::<Result<_, _>>()?;
                Ok(self.new_table(Table::of(items)))
            }
        }
    }

    /// The reply that a returned value is. A table that several tables share is written several
    /// times.
    fn reply(&mut self, value: &Value, depth: usize) -> Result<Reply, Stop> {
        self.spend(VALUE_STEPS)?;
        let table = match value {
            Value::Nil | Value::Bool(false) | Value::Function(_) => return Ok(Reply::Nil),
            Value::Bool(true) => return Ok(Reply::Integer(1)),
            Value::Number(number) => return Ok(Reply::Integer(*number as i64)),
            Value::Text(text) => {
                self.spend(text.len())?;
                return Ok(Reply::Bulk(text.to_vec()));
            }
            Value::Table(_) if depth == REPLY_DEPTH_MAX => {
                return Err(self.error("tables of the reply are nested too deep"));
            }
            Value::Table(table) => *table,
        };
        if let Value::Text(error) = self.tables[table].get(&Value::from("err")) {
            return Ok(Reply::Error(error.to_vec()));
        }
        if let Value::Text(status) = self.tables[table].get(&Value::from("ok")) {
            return Ok(Reply::Status(status.to_vec()));
        }
        let mut items = Vec::new();
        while let Some(item) = self.tables[table].items.get(items.len())
            && *item != Value::Nil
        {
            let item = item.clone();
            items.push(self.reply(&item, depth + 1)?);
        }
        Ok(Reply::Array(items))
    }
}
