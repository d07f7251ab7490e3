//! A TOML text as dotted keys.
//!
//! Each setting takes its own key out of a [`Document`], and a key that is left over is unknown. So
//! each key is written once, beside its setting. The error for an unknown key names the nearest
//! known one of all tables and crates. Whether settings fit together is not checked here, because
//! options may still override them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::Durability;
use strsim::levenshtein;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Role, parse_duration};

/// The problem of a configuration text, and its line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {problem}")]
pub struct TomlError {
    line: usize,
    problem: String,
}

impl TomlError {
    /// The line, counted from one.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The problem, without the line.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The keys of a TOML text that no setting has taken yet.
#[derive(Debug)]
pub struct Document<'a> {
    text: &'a str,
    /// Where this document begins, if it is a table of a larger one.
    offset: usize,
    entries: BTreeMap<String, Entry<'a>>,
    known: Vec<&'static str>,
}

/// A value that is not a table, or an empty table.
#[derive(Debug)]
struct Entry<'a> {
    /// Where its key begins.
    offset: usize,
    value: DeValue<'a>,
}

impl<'a> Document<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is not TOML.
    pub fn parse(text: &'a str) -> Result<Self, TomlError> {
        let root = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(text.len(), |span| span.start);
            let line = line_at(text, offset);
            let source = text.lines().nth(line - 1).unwrap_or_default().trim();
            // Errors end up in logs, and the line may contain the token itself.
            let source = if source.contains("token") { "token_sha256 = ..." } else { source };
            TomlError { line, problem: format!("{}, in `{source}`", error.message()) }
        })?;
        Ok(Self::new(text, 0, "", root.into_inner()))
    }

    fn new(text: &'a str, offset: usize, prefix: &str, table: DeTable<'a>) -> Self {
        let mut document = Self { text, offset, entries: BTreeMap::new(), known: Vec::new() };
        document.flatten(prefix, table);
        document
    }

    fn flatten(&mut self, prefix: &str, table: DeTable<'a>) {
        for (key, value) in table {
            let name = key.get_ref();
            let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let key_path = if !name.is_empty() && name.chars().all(is_bare) {
                format!("{prefix}{name}")
            } else {
                format!("{prefix}{name:?}")
            };
            match value.into_inner() {
                DeValue::Table(inner) if !inner.is_empty() => {
                    self.flatten(&format!("{key_path}."), inner);
                }
                value => {
                    self.entries.insert(key_path, Entry { offset: key.span().start, value });
                }
            }
        }
    }

    /// Takes out a key. Without it, the setting keeps its value.
    ///
    /// # Errors
    /// When the value does not suit the setting.
    pub fn read<T: FromToml>(&mut self, key: &'static str, to: &mut T) -> Result<(), TomlError> {
        self.known.push(key);
        if let Some(entry) = self.entries.remove(key) {
            *to = self.value(key, &entry)?;
        }
        Ok(())
    }

    fn value<T: FromToml>(&self, key: &str, entry: &Entry<'_>) -> Result<T, TomlError> {
        T::from_toml(&entry.value).map_err(|problem| {
            let problem = match problem {
                // Errors end up in logs, and the value may be the token itself.
                Problem::Unlike(expected) if key.contains("token") => {
                    format!("`{key}` is not text; expected {expected}")
                }
                Problem::Unlike(expected) => {
                    format!("`{key}` is {}; expected {expected}", describe(&entry.value))
                }
                Problem::Bad(why) => format!("`{key}`: {why}"),
            };
            self.error_at(entry.offset, problem)
        })
    }

    pub(super) fn read_peers(
        &mut self,
        peers: &mut BTreeMap<u16, String>,
    ) -> Result<(), TomlError> {
        self.known.push("peers.1");
        let keys = self.entries.extract_if("peers.".to_owned().."peers/".to_owned(), |_, _| true);
        for (key, entry) in keys.collect::<Vec<_>>() {
            let id = &key["peers.".len()..];
            // One spelling per number, or `1` and `01` would be two keys of one node.
            let Some(node) = id.parse().ok().filter(|node: &u16| node.to_string() == id) else {
                let problem =
                    format!("`{key}`: a peer's key is its node id, a number from 1 to 1023");
                return Err(self.error_at(entry.offset, problem));
            };
            peers.insert(node, self.value(&key, &entry)?);
        }
        Ok(())
    }

    /// Takes out the tables `[[key]]`. Their keys begin with `key` and a dot.
    ///
    /// # Errors
    /// When there is something else under that key.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Self>, TomlError> {
        self.known.push(key);
        let prefix = format!("{key}.");
        if let Some(offset) = self.first_of(&prefix) {
            let problem = format!("an entry of {key} is written `[[{key}]]`, in two brackets");
            return Err(self.error_at(offset, problem));
        }
        let Some(Entry { offset, value }) = self.entries.remove(key) else { return Ok(Vec::new()) };
        let problem = format!("`{key}` is {}; expected tables, `[[{key}]]`", describe(&value));
        let not_tables = self.error_at(offset, problem);
        let DeValue::Array(array) = value else { return Err(not_tables) };
        let tables = array.into_iter().map(|entry| match (entry.span(), entry.into_inner()) {
            (span, DeValue::Table(table)) => Some(Self::new(self.text, span.start, &prefix, table)),
            _ => None,
        });
        tables.collect::<Option<_>>().ok_or(not_tables)
    }

    /// An error in the line in which this document begins.
    #[must_use]
    pub fn error(&self, problem: String) -> TomlError {
        self.error_at(self.offset, problem)
    }

    pub(super) fn error_at(&self, offset: usize, problem: String) -> TomlError {
        TomlError { line: line_at(self.text, offset), problem }
    }

    /// Where the first key that begins with `prefix` begins.
    pub(super) fn first_of(&self, prefix: &str) -> Option<usize> {
        let keys = self.entries.iter().filter(|(key, _)| key.starts_with(prefix));
        keys.map(|(_, entry)| entry.offset).min()
    }

    /// Refuses the first key in the text that no setting has taken.
    ///
    /// # Errors
    /// When there is one.
    pub fn finish(&self) -> Result<(), TomlError> {
        let is_table = |key: &str| {
            self.known
                .iter()
                .any(|known| known.strip_prefix(key).is_some_and(|k| k.starts_with('.')))
        };
        // A table may be empty, with all its keys commented out.
        let is_empty = |key: &str, value: &DeValue<'_>| value.is_table() && is_table(key);
        let left = self.entries.iter().filter(|(key, entry)| !is_empty(key, &entry.value));
        let Some((key, entry)) = left.min_by_key(|(_, entry)| entry.offset) else {
            return Ok(());
        };
        let table = key.split_once('.').map(|(table, _)| table);
        let problem = if is_table(key) {
            format!("`{key}` is {}; expected a table, `[{key}]`", describe(&entry.value))
        } else if let Some(table) = table.filter(|table| self.known.contains(table)) {
            format!("`{table}` is a table here; expected a single value, `{table} = ...`")
        } else {
            let nearest = self.known.iter().min_by_key(|known| distance(key, known));
            let nearest = nearest.expect("some keys are known");
            format!("unknown key `{key}`; the nearest known key is `{nearest}`")
        };
        Err(self.error_at(entry.offset, problem))
    }
}

/// The distance of two keys. The right name in the wrong table is near, and so is a prefix.
fn distance(key: &str, known: &str) -> usize {
    let last = |key| str::rsplit(key, '.').next().unwrap_or_default();
    let begun = if known.starts_with(key) { 2 } else { usize::MAX };
    levenshtein(key, known).min(levenshtein(last(key), last(known)) + 1).min(begun)
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(when) => format!("the date {when}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Why a value does not suit its key.
#[derive(Debug)]
pub enum Problem {
    /// It has the wrong kind; this was expected.
    Unlike(String),
    /// It has the right kind, but this problem.
    Bad(String),
}

/// A type that a TOML value can be read as.
pub trait FromToml: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// When the value does not suit the type.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem>;
}

/// A type that is written as a text in quotes.
pub trait TomlText: FromStr {
    /// What the error expects if the value is not a text.
    const EXPECTED: &'static str;
}

impl TomlText for String {
    const EXPECTED: &'static str = "text in quotes";
}

impl TomlText for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";
}

impl<T: TomlText<Err: ToString>> FromToml for T {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let expected = || Problem::Unlike(Self::EXPECTED.to_owned());
        let text = value.as_str().ok_or_else(expected)?;
        text.parse::<Self>().map_err(|error| Problem::Bad(error.to_string()))
    }
}

impl<T: FromToml> FromToml for Option<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        T::from_toml(value).map(Some)
    }
}

impl FromToml for Duration {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let Some(text) = value.as_str() else {
            let expected = "a duration in quotes, such as \"15s\" or \"500ms\"";
            return Err(Problem::Unlike(expected.to_owned()));
        };
        parse_duration(text).map_err(|error| Problem::Bad(error.to_string()))
    }
}

impl FromToml for Role {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let role = value.as_str().and_then(|text| text.parse().ok());
        role.ok_or_else(|| Problem::Unlike("\"member\" or \"proposer\"".to_owned()))
    }
}

impl FromToml for Durability {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let known = [Self::Disk, Self::Volatile, Self::Refused];
        let named = |one: &Self| value.as_str().is_some_and(|text| text == one.to_string());
        let expected = "\"disk\", \"volatile\" or \"refuse\"";
        known.into_iter().find(named).ok_or_else(|| Problem::Unlike(expected.to_owned()))
    }
}

impl FromToml for bool {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        value.as_bool().ok_or_else(|| Problem::Unlike("true or false, without quotes".to_owned()))
    }
}

impl<T: FromToml> FromToml for Vec<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let expected = || Problem::Unlike("a list in brackets".to_owned());
        let read = |item: &Spanned<DeValue<'_>>| match T::from_toml(item.get_ref()) {
            Err(Problem::Unlike(expected)) => {
                let what = describe(item.get_ref());
                Err(Problem::Bad(format!("{what} is in the list; expected {expected}")))
            }
            read => read,
        };
        value.as_array().ok_or_else(expected)?.iter().map(read).collect()
    }
}

macro_rules! from_toml_number {
    ($($number:ty),*) => {$(
        impl FromToml for $number {
            fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
                let number = value.as_integer().and_then(|number| {
                    Self::from_str_radix(number.as_str(), number.radix()).ok()
                });
                number.ok_or_else(|| {
                    let quotes = if value.is_str() { ", without quotes" } else { "" };
                    let expected = format!("a whole number from 0 to {}{quotes}", Self::MAX);
                    Problem::Unlike(expected)
                })
            }
        }
    )*};
}

from_toml_number!(u8, u16, u32, u64, usize);
