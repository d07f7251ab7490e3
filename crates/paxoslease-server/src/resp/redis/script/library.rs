//! The functions that scripts may call, as Lua 5.1 and Redis 7 have them.

use super::machine::{Machine, Stop};
use super::value::Value;

type Function = fn(&mut Machine<'_>, &[Value]) -> Result<Vec<Value>, Stop>;

/// All functions by their names.
pub(super) const LIBRARY: [(&str, Function); 10] = [
    ("redis.call", |machine, args| Ok(vec![machine.command(args, false)?])),
    ("redis.pcall", |machine, args| Ok(vec![machine.command(args, true)?])),
    ("redis.status_reply", status_reply),
    ("redis.error_reply", error_reply),
    ("string.sub", sub),
    ("table.insert", insert),
    ("tonumber", to_number),
    ("tostring", to_string),
    ("type", |machine, args| Ok(vec![machine.text(arg(args, 0).type_name().as_bytes())?])),
    ("unpack", unpack),
];

fn arg(args: &[Value], place: usize) -> &Value {
    args.get(place).unwrap_or(&Value::Nil)
}

fn status_reply(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let text = machine.string(arg(args, 0))?;
    Ok(vec![machine.marked("ok", &text)?])
}

/// An error of one word gets the code ERR.
fn error_reply(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let text = machine.string(arg(args, 0))?;
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    let code: &[u8] = if text.contains(&b' ') { b"" } else { b"ERR " };
    Ok(vec![machine.marked("err", &[code, text].concat())?])
}

/// Positions count from 1, and from the end if they are negative.
fn sub(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let text = machine.string(arg(args, 0))?;
    let len = text.len() as f64;
    let mut position = |place, default| {
        let number = if args.len() > place { machine.number(&args[place])? } else { default };
        Ok(if number < 0.0 { number + len + 1.0 } else { number })
    };
    // What is outside of the text, or not a number, is cut by the conversion to an integer.
    let from = (position(1, 1.0)? as usize).max(1);
    let to = (position(2, -1.0)? as usize).min(text.len());
    Ok(vec![machine.text(text.get(from - 1..to).unwrap_or_default())?])
}

fn insert(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let [table, value] = args else {
        return Err(machine.error("table.insert takes a table and a value"));
    };
    let next = machine.table(table)?.items.len() + 1;
    machine.set(table, &Value::Number(next as f64), value.clone())?;
    Ok(Vec::new())
}

fn to_number(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let [value] = args else { return Err(machine.error("tonumber takes one value")) };
    Ok(vec![machine.read_number(value)?.map_or(Value::Nil, Value::Number)])
}

fn to_string(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let text = match arg(args, 0) {
        Value::Nil => machine.text(b"nil")?,
        Value::Bool(value) => machine.text(value.to_string().as_bytes())?,
        value => Value::Text(machine.string(value)?),
    };
    Ok(vec![text])
}

/// All items of a table.
fn unpack(machine: &mut Machine<'_>, args: &[Value]) -> Result<Vec<Value>, Stop> {
    let [table] = args else { return Err(machine.error("unpack takes one table")) };
    let count = machine.table(table)?.items.len();
    machine.spend(16 * count)?;
    Ok(machine.table(table)?.items.clone())
}
