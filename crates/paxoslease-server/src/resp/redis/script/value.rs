//! Values of a script that runs, and what they are as replies of Redis.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::number;

/// A table by its number among those of the run. References do not keep tables alive, so tables
/// that contain each other do not leak: all end with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableId(pub(super) usize);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Arc<[u8]>),
    Table(TableId),
}

impl Value {
    pub(super) fn text(bytes: &[u8]) -> Self {
        Self::Text(Arc::from(bytes))
    }

    /// False and nil are false. Zero and the empty string are true.
    pub(super) fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Table(_) => "table",
        }
    }

    /// A number, also one that is written in a string.
    pub(super) fn to_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => number::from_text(text),
            Self::Nil | Self::Bool(_) | Self::Table(_) => None,
        }
    }

    /// A string, also a number that is written as one.
    pub(super) fn to_text(&self) -> Option<Arc<[u8]>> {
        match self {
            Self::Text(text) => Some(Arc::clone(text)),
            Self::Number(number) => Some(Arc::from(number::show(*number).as_bytes())),
            Self::Nil | Self::Bool(_) | Self::Table(_) => None,
        }
    }
}

/// A key of a table that does not continue its sequence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Bool(bool),
    /// The bits of a number, of which zero has one sign.
    Number(u64),
    Text(Arc<[u8]>),
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// The values of 1, 2, 3 and so on. The last is not nil.
    sequence: Vec<Value>,
    others: BTreeMap<Key, Value>,
}

impl Table {
    pub(super) fn of(sequence: Vec<Value>) -> Self {
        let mut table = Self { sequence, others: BTreeMap::new() };
        table.trim();
        table
    }

    pub(super) fn len(&self) -> usize {
        self.sequence.len()
    }

    /// The number of its keys.
    pub(super) fn count(&self) -> usize {
        self.sequence.len() + self.others.len()
    }

    /// The value of a position counted from 1.
    pub(super) fn at(&self, position: usize) -> Value {
        let found = position.checked_sub(1).and_then(|index| self.sequence.get(index));
        found.cloned().unwrap_or(Value::Nil)
    }

    pub(super) fn field(&self, name: &str) -> Value {
        self.get(&Value::text(name.as_bytes()))
    }

    pub(super) fn get(&self, key: &Value) -> Value {
        if let Some(position) = position(key)
            && position <= self.sequence.len()
        {
            return self.at(position);
        }
        other(key).and_then(|key| self.others.get(&key)).cloned().unwrap_or(Value::Nil)
    }

    /// Says whether the key can be one.
    pub(super) fn set(&mut self, key: &Value, value: Value) -> bool {
        let next = self.sequence.len() + 1;
        match position(key) {
            Some(position) if position < next => {
                self.sequence[position - 1] = value;
                self.trim();
            }
            Some(position) if position == next => {
                if let Some(key) = other(key) {
                    self.others.remove(&key);
                }
                self.sequence.push(value);
                self.trim();
                self.continue_sequence();
            }
            _ => {
                let Some(key) = other(key) else { return false };
                match value {
                    Value::Nil => self.others.remove(&key),
                    value => self.others.insert(key, value),
                };
            }
        }
        true
    }

    /// Inserts in front of a position counted from 1, which is at most one behind the end.
    pub(super) fn insert(&mut self, position: usize, value: Value) {
        self.sequence.insert(position - 1, value);
        self.trim();
        self.continue_sequence();
    }

    /// All keys, those of the sequence first.
    pub(super) fn keys(&self) -> Vec<Value> {
        let sequence = (1..=self.sequence.len()).map(|position| Value::Number(position as f64));
        let others = self.others.keys().map(|key| match key {
            Key::Bool(key) => Value::Bool(*key),
            Key::Number(bits) => Value::Number(f64::from_bits(*bits)),
            Key::Text(text) => Value::Text(Arc::clone(text)),
        });
        sequence.chain(others).collect()
    }

    fn trim(&mut self) {
        while self.sequence.last() == Some(&Value::Nil) {
            self.sequence.pop();
        }
    }

    /// Moves what now follows the sequence into it.
    fn continue_sequence(&mut self) {
        while !self.others.is_empty() {
            let next = Key::Number(((self.sequence.len() + 1) as f64).to_bits());
            let Some(value) = self.others.remove(&next) else { return };
            self.sequence.push(value);
        }
    }
}

/// The position that a key means, counted from 1.
fn position(key: &Value) -> Option<usize> {
    let Value::Number(number) = key else { return None };
    let position = *number as usize;
    (position >= 1 && position as f64 == *number && position < usize::MAX).then_some(position)
}

fn other(key: &Value) -> Option<Key> {
    match key {
        Value::Bool(key) => Some(Key::Bool(*key)),
        Value::Number(number) if !number.is_nan() => Some(Key::Number((number + 0.0).to_bits())),
        Value::Text(text) => Some(Key::Text(Arc::clone(text))),
        Value::Nil | Value::Number(_) | Value::Table(_) => None,
    }
}
