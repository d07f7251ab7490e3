//! Operators and the library of Lua, as far as lock scripts use them.

use std::cmp::Ordering;

use super::machine::{Machine, Stop, WRITTEN_STEPS};
use super::number;
use super::syntax::{Binary, Expr, Function, Unary};
use super::value::Value;

impl Machine<'_> {
    pub(super) fn unary(&mut self, operator: Unary, operand: &Value) -> Result<Value, Stop> {
        match (operator, operand) {
            (Unary::Not, value) => Ok(Value::Bool(!value.is_true())),
            (Unary::Minus, value) => Ok(Value::Number(-self.number(value, "arithmetic on")?)),
            (Unary::Length, Value::Text(text)) => Ok(Value::Number(text.len() as f64)),
            (Unary::Length, value @ Value::Table(_)) => {
                Ok(Value::Number(self.table(value)?.len() as f64))
            }
            (Unary::Length, value) => Err(self.cannot("get length of", value)),
        }
    }

    pub(super) fn binary(
        &mut self,
        operator: Binary,
        left: &Expr,
        right: &Expr,
    ) -> Result<Value, Stop> {
        let left = self.value(left)?;
        match operator {
            Binary::And if !left.is_true() => return Ok(left),
            Binary::Or if left.is_true() => return Ok(left),
            _ => {}
        }
        let right = self.value(right)?;
        Ok(match operator {
            Binary::And | Binary::Or => right,
            Binary::Equal => Value::Bool(self.equal(&left, &right)?),
            Binary::NotEqual => Value::Bool(!self.equal(&left, &right)?),
            Binary::Less => Value::Bool(self.order(&left, &right)? == Some(Ordering::Less)),
            Binary::Greater => Value::Bool(self.order(&left, &right)? == Some(Ordering::Greater)),
            Binary::LessOrEqual => {
                Value::Bool(self.order(&left, &right)?.is_some_and(Ordering::is_le))
            }
            Binary::GreaterOrEqual => {
                Value::Bool(self.order(&left, &right)?.is_some_and(Ordering::is_ge))
            }
            Binary::Concat => {
                let left = self.string(&left, "concatenate")?;
                let right = self.string(&right, "concatenate")?;
                self.touch(left.len() + right.len())?;
                self.text(&[left, right].concat())?
            }
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Modulo => {
                let left = self.number(&left, "perform arithmetic on")?;
                let right = self.number(&right, "perform arithmetic on")?;
                Value::Number(arithmetic(operator, left, right))
            }
        })
    }

    fn cannot(&self, what: &str, value: &Value) -> Stop {
        self.fault(format!("attempt to {what} a {} value", value.type_name()))
    }

    fn number(&mut self, value: &Value, what: &str) -> Result<f64, Stop> {
        self.read_number(value)?.ok_or_else(|| self.cannot(what, value))
    }

    fn string(&mut self, value: &Value, what: &str) -> Result<std::sync::Arc<[u8]>, Stop> {
        if let Value::Number(_) = value {
            self.spend(WRITTEN_STEPS)?;
        }
        value.to_text().ok_or_else(|| self.cannot(what, value))
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Stop> {
        self.touch_both(left, right)?;
        Ok(left == right)
    }

    /// The steps of a comparison.
    fn touch_both(&mut self, left: &Value, right: &Value) -> Result<(), Stop> {
        match (left, right) {
            (Value::Text(left), Value::Text(right)) => self.touch(left.len().min(right.len())),
            _ => Ok(()),
        }
    }

    /// Numbers with numbers and strings with strings. None for NaN.
    fn order(&mut self, left: &Value, right: &Value) -> Result<Option<Ordering>, Stop> {
        self.touch_both(left, right)?;
        match (left, right) {
            (Value::Number(left), Value::Number(right)) => Ok(left.partial_cmp(right)),
            (Value::Text(left), Value::Text(right)) => Ok(Some(left.cmp(right))),
            _ => {
                let (left, right) = (left.type_name(), right.type_name());
                Err(self.fault(format!("attempt to compare {left} with {right}")))
            }
        }
    }

    /// The values of `unpack(table, from, to)`.
    pub(super) fn unpack(&mut self, args: &[Expr]) -> Result<Vec<Value>, Stop> {
        let args = self.values(args)?;
        let table = args.first().unwrap_or(&Value::Nil);
        let len = self.table(table)?.len() as f64;
        let from = self.optional(args.get(1), 1.0)?;
        let to = self.optional(args.get(2), len)?;
        let mut values = Vec::new();
        let mut at = from;
        while at <= to {
            self.step()?;
            values.push(self.table(table)?.get(&Value::Number(at)));
            at += 1.0;
        }
        Ok(values)
    }

    fn optional(&mut self, value: Option<&Value>, default: f64) -> Result<f64, Stop> {
        match value {
            None | Some(Value::Nil) => Ok(default),
            Some(value) => self.number(value, "use as an index"),
        }
    }

    pub(super) fn library(&mut self, function: Function, args: &[Value]) -> Result<Value, Stop> {
        let first = args.first().unwrap_or(&Value::Nil);
        Ok(match function {
            Function::ToNumber => self.number_or_nil(args)?,
            Function::ToString => self.written(first)?,
            Function::Type => self.text(first.type_name().as_bytes())?,
            Function::Floor => Value::Number(self.number(first, "round")?.floor()),
            Function::Ceil => Value::Number(self.number(first, "round")?.ceil()),
            Function::Abs => Value::Number(self.number(first, "round")?.abs()),
            Function::Min => self.extreme(args, |found, next| next < found)?,
            Function::Max => self.extreme(args, |found, next| next > found)?,
            Function::Sub => self.sub(args)?,
            Function::Len => Value::Number(self.string(first, "get length of")?.len() as f64),
            Function::Lower => {
                let text = self.string(first, "get lower case of")?;
                self.touch(text.len())?;
                let text = text.to_ascii_lowercase();
                self.text(&text)?
            }
            Function::Upper => {
                let text = self.string(first, "get upper case of")?;
                self.touch(text.len())?;
                let text = text.to_ascii_uppercase();
                self.text(&text)?
            }
            Function::Format => self.format(args)?,
            Function::Insert => self.insert(args)?,
            Function::Join => self.join(args)?,
            Function::StatusReply => {
                let text = self.string(first, "make a status of")?;
                self.marked("ok", &text)?
            }
            Function::ErrorReply => {
                let text = self.string(first, "make an error of")?;
                self.marked("err", &error_text(&text))?
            }
            Function::Nothing => Value::Bool(true),
            Function::Unpack => unreachable!("the caller expands `unpack`"),
        })
    }

    fn number_or_nil(&mut self, args: &[Value]) -> Result<Value, Stop> {
        let Some(first) = args.first() else {
            return Err(self.fault("tonumber needs a value"));
        };
        if let Some(base) = args.get(1)
            && self.read_number(base)? != Some(10.0)
        {
            return Err(self.fault("tonumber knows only the base 10"));
        }
        Ok(self.read_number(first)?.map_or(Value::Nil, Value::Number))
    }

    fn written(&mut self, value: &Value) -> Result<Value, Stop> {
        match value {
            Value::Nil => self.text(b"nil"),
            Value::Bool(value) => self.text(value.to_string().as_bytes()),
            Value::Table(_) => Err(self.cannot("write", value)),
            Value::Number(_) | Value::Text(_) => Ok(Value::Text(self.string(value, "write")?)),
        }
    }

    fn extreme(&mut self, args: &[Value], is_better: fn(f64, f64) -> bool) -> Result<Value, Stop> {
        let mut found = self.number(args.first().unwrap_or(&Value::Nil), "compare")?;
        for arg in &args[1..] {
            let next = self.number(arg, "compare")?;
            if is_better(found, next) {
                found = next;
            }
        }
        Ok(Value::Number(found))
    }

    /// `string.sub`: positions count from 1, and from the end if they are negative.
    fn sub(&mut self, args: &[Value]) -> Result<Value, Stop> {
        let text = self.string(args.first().unwrap_or(&Value::Nil), "take a part of")?;
        let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let place = |number: f64| match number::truncate(number) {
            position if position < 0 => position.saturating_add(len + 1),
            position => position,
        };
        let from =
            place(self.number(args.get(1).unwrap_or(&Value::Nil), "use as an index")?).max(1);
        let to = place(self.optional(args.get(2), -1.0)?).min(len);
        if from > to {
            return self.text(b"");
        }
        let bound = |position: i64| usize::try_from(position).expect("within the text");
        self.text(&text[bound(from - 1)..bound(to)])
    }

    /// `string.format` with `%s`, `%d` and `%%`.
    fn format(&mut self, args: &[Value]) -> Result<Value, Stop> {
        let pattern = self.string(args.first().unwrap_or(&Value::Nil), "format")?;
        self.spend(pattern.len())?;
        let mut args = args[1..].iter();
        let mut text = Vec::new();
        let mut bytes = pattern.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'%' {
                text.push(*byte);
                continue;
            }
            match bytes.next() {
                Some(b'%') => text.push(b'%'),
                Some(b's') => {
                    let Value::Text(shown) = self.written(args.next().unwrap_or(&Value::Nil))?
                    else {
                        unreachable!("`written` makes a string")
                    };
                    self.text(&shown)?;
                    text.extend_from_slice(&shown);
                }
                Some(b'd') => {
                    let number = self.number(args.next().unwrap_or(&Value::Nil), "format")?;
                    self.spend(WRITTEN_STEPS)?;
                    text.extend_from_slice(number::truncate(number).to_string().as_bytes());
                }
                _ => return Err(self.fault("string.format knows only %s and %d")),
            }
        }
        self.text(&text)
    }

    /// `table.insert(table, value)` and `table.insert(table, position, value)`.
    fn insert(&mut self, args: &[Value]) -> Result<Value, Stop> {
        let (table, position, value) = match args {
            [table, value] => (table, None, value),
            [table, position, value] => (table, Some(self.number(position, "index by")?), value),
            _ => return Err(self.fault("wrong number of arguments to table.insert")),
        };
        let end = self.table(table)?.len() + 1;
        let position = position.map_or(end, |position| position as usize);
        if !(1..=end).contains(&position) {
            return Err(self.fault("table.insert: position out of bounds"));
        }
        self.spend(end - position)?;
        self.table(table)?.insert(position, value.clone());
        Ok(Value::Nil)
    }

    /// `table.concat(table, separator)`.
    fn join(&mut self, args: &[Value]) -> Result<Value, Stop> {
        let table = args.first().unwrap_or(&Value::Nil);
        let separator = match args.get(1) {
            None | Some(Value::Nil) => b"".as_slice().into(),
            Some(value) => self.string(value, "concatenate")?,
        };
        let mut text = Vec::new();
        for position in 1..=self.table(table)?.len() {
            self.step()?;
            let item = self.table(table)?.at(position);
            let item = self.string(&item, "concatenate")?;
            self.text(&item)?;
            if position > 1 {
                self.text(&separator)?;
                text.extend_from_slice(&separator);
            }
            text.extend_from_slice(&item);
        }
        self.text(&text)
    }
}

fn arithmetic(operator: Binary, left: f64, right: f64) -> f64 {
    match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide => left / right,
        Binary::Modulo => left - (left / right).floor() * right,
        _ => unreachable!("only the operators of arithmetic get here"),
    }
}

/// As Redis 7 does it: an error of one word gets the code ERR.
fn error_text(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}
