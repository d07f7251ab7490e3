//! Values of a script that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A number from here on is not written as Lua 5.1 would write it, with an exponent.
const WRITTEN_MAX: f64 = 1e14;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Arc<[u8]>),
    /// The place among the tables of the run. All of them end with the run, so tables that contain
    /// each other do not leak.
    Table(usize),
    /// The place in the library.
    Function(usize),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Arc::from(text.as_bytes()))
    }
}

impl Value {
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
            Self::Function(_) => "function",
        }
    }

    /// A number, also one that is written in a string.
    pub(super) fn to_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => {
                let text = std::str::from_utf8(text).ok()?;
                let text = text.trim_matches(|blank| matches!(blank, '\t'..='\r' | ' '));
                text.strip_prefix('-')
                    .map_or_else(|| parse_number(text), |size| parse_number(size).map(|size| -size))
            }
            Self::Nil | Self::Bool(_) | Self::Table(_) | Self::Function(_) => None,
        }
    }

    /// A string, also a whole number of at most 14 digits that is written as one.
    pub(super) fn to_text(&self) -> Option<Arc<[u8]>> {
        match self {
            Self::Text(text) => Some(Arc::clone(text)),
            Self::Number(number) if number.fract() == 0.0 && number.abs() < WRITTEN_MAX => {
                Some(Arc::from((*number as i64).to_string().as_bytes()))
            }
            _ => None,
        }
    }
}

/// A number without a sign and without blanks around it: decimal with an optional exponent, or
/// hexadecimal. Unlike C's `strtod` it knows no infinity and no NaN.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let is_unsigned = digits.starts_with(|first: char| first.is_ascii_hexdigit());
        return u64::from_str_radix(digits, 16)
            .ok()
            .filter(|_| is_unsigned)
            .map(|size| size as f64);
    }
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    text.parse().ok().filter(|_| is_number)
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// The values of 1, 2, 3 and so on. The last is not nil.
    pub(super) items: Vec<Value>,
    /// The values of names.
    pub(super) fields: BTreeMap<Arc<[u8]>, Value>,
}

impl Table {
    pub(super) fn of(items: Vec<Value>) -> Self {
        let mut table = Self { items, fields: BTreeMap::new() };
        table.trim();
        table
    }

    pub(super) fn get(&self, key: &Value) -> Value {
        let found = match key {
            Value::Text(name) => self.fields.get(name),
            key => index(key).and_then(|index| self.items.get(index)),
        };
        found.cloned().unwrap_or(Value::Nil)
    }

    /// Says whether the key can be one: a name, or a position at most one behind the end.
    pub(super) fn set(&mut self, key: &Value, value: Value) -> bool {
        match (key, index(key)) {
            (Value::Text(name), _) if value == Value::Nil => _ = self.fields.remove(name),
            (Value::Text(name), _) => _ = self.fields.insert(Arc::clone(name), value),
            (_, Some(index)) if index < self.items.len() => self.items[index] = value,
            (_, Some(index)) if index == self.items.len() => self.items.push(value),
            _ => return false,
        }
        self.trim();
        true
    }

    fn trim(&mut self) {
        while self.items.last() == Some(&Value::Nil) {
            self.items.pop();
        }
    }
}

/// The index that a key means, which counts positions from 1.
fn index(key: &Value) -> Option<usize> {
    let Value::Number(number) = key else { return None };
    let position = *number as usize;
    if position as f64 == *number { position.checked_sub(1) } else { None }
}
