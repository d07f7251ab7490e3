//! A configuration as a TOML text.
//!
//! The document is flattened into dotted keys; each setting takes its own out, and what is left
//! over is unknown. So a key is spelt once, here, and the nearest known one is found in whatever
//! table it belongs to. Whether settings fit together is for [`Config::check`], as flags may still
//! override them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use strsim::levenshtein;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{
    Access, ClientTls, Config, Limits, NamePattern, Role, Tls, TokenHash, Verb, parse_duration,
};

/// What is wrong with a configuration as a text, and where.
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

    /// What is wrong there.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    fn at(text: &str, offset: usize, problem: String) -> Self {
        Self { line: line_at(text, offset), problem }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

fn read_table(text: &str) -> Result<Spanned<DeTable<'_>>, TomlError> {
    DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(text.len(), |span| span.start);
        let source = text.lines().nth(line_at(text, offset) - 1).unwrap_or_default().trim();
        // Errors end up in logs, and somebody may have written the token itself.
        let source = if source.contains("token") { "token_sha256 = ..." } else { source };
        TomlError::at(text, offset, format!("{}, in `{source}`", error.message()))
    })
}

/// Reads a configuration; what it leaves out keeps its default.
pub(super) fn parse(text: &str) -> Result<Config, TomlError> {
    let mut config = Config::new("", 0);
    let root = read_table(text)?;
    let mut document = Document { text, entries: BTreeMap::new(), known: Vec::new() };
    document.flatten("", root.get_ref());
    document.read("cell", &mut config.cell)?;
    document.read("node", &mut config.node)?;
    document.read("role", &mut config.role)?;
    document.read("max_lease", &mut config.max_lease)?;
    document.read("clock_drift_ppm", &mut config.clock_drift_ppm)?;
    document.read("clock_granularity", &mut config.clock_granularity)?;
    document.read("data_dir", &mut config.data_dir)?;
    document.read("shards", &mut config.shards)?;
    document.read("spin", &mut config.spin)?;
    document.read_peers(&mut config.peers)?;
    document.read("listen.peers", &mut config.listen.peers)?;
    document.read("listen.clients", &mut config.listen.clients)?;
    document.read("listen.http", &mut config.listen.http)?;
    document.read("listen.allow_plaintext", &mut config.listen.allow_plaintext)?;
    document.read("listen.peers_out_of_reach", &mut config.listen.peers_out_of_reach)?;
    let tls_at = document.first_of("tls.");
    let (mut cert, mut key, mut ca) = (None::<PathBuf>, None::<PathBuf>, None::<PathBuf>);
    document.read("tls.cert", &mut cert)?;
    document.read("tls.key", &mut key)?;
    document.read("tls.ca", &mut ca)?;
    let mut clients = None;
    document.read("tls.clients", &mut clients)?;
    document.read("timing.request_timeout", &mut config.timing.request_timeout)?;
    document.read("timing.attempt_timeout", &mut config.timing.attempt_timeout)?;
    document.read("timing.heartbeat", &mut config.timing.heartbeat)?;
    document.read("timing.peer_timeout", &mut config.timing.peer_timeout)?;
    document.read_limits(&mut config.limits)?;
    document.read_access(&mut config.access)?;
    document.finish()?;
    // After the unknown keys: that one is misspelt is the better thing to be told.
    let missing = |key| {
        let problem = format!("`tls.{key}` is missing; give `cert`, `key` and `ca`, or none");
        Err(TomlError::at(text, tls_at.unwrap_or(0), problem))
    };
    config.tls = match (cert, key, ca) {
        (Some(cert), Some(key), Some(ca)) => {
            Some(Tls { cert, key, ca, clients: clients.unwrap_or_default() })
        }
        (None, None, None) if clients.unwrap_or_default() == ClientTls::Off => None,
        (None, _, _) => return missing("cert"),
        (_, None, _) => return missing("key"),
        (_, _, None) => return missing("ca"),
    };
    Ok(config)
}

/// Reads one limit, as `key = number`; the others stay as they are.
pub(super) fn parse_limit(limits: &mut Limits, assignment: &str) -> Result<(), TomlError> {
    let text = format!("limits.{}", assignment.trim_start());
    let root = read_table(&text)?;
    let mut document = Document { text: &text, entries: BTreeMap::new(), known: Vec::new() };
    document.flatten("", root.get_ref());
    document.read_limits(limits)?;
    document.finish()
}

/// The keys nobody has taken yet, and those that somebody would have.
struct Document<'a> {
    text: &'a str,
    entries: BTreeMap<String, Entry<'a>>,
    known: Vec<&'static str>,
}

/// A value that is no table, or an empty one.
struct Entry<'a> {
    /// Where its key begins.
    offset: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Document<'a> {
    fn flatten(&mut self, prefix: &str, table: &'a DeTable<'a>) {
        for (key, value) in table {
            let name = key.get_ref();
            let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let key_path = if !name.is_empty() && name.chars().all(is_bare) {
                format!("{prefix}{name}")
            } else {
                format!("{prefix}{name:?}")
            };
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => {
                    self.flatten(&format!("{key_path}."), inner);
                }
                value => {
                    self.entries.insert(key_path, Entry { offset: key.span().start, value });
                }
            }
        }
    }

    fn read<T: FromToml>(&mut self, key: &'static str, to: &mut T) -> Result<(), TomlError> {
        self.known.push(key);
        if let Some(entry) = self.entries.remove(key) {
            *to = self.value(key, &entry)?;
        }
        Ok(())
    }

    fn value<T: FromToml>(&self, key: &str, entry: &Entry<'_>) -> Result<T, TomlError> {
        T::from_toml(entry.value).map_err(|problem| {
            let problem = match problem {
                // Errors end up in logs, and the value may be the token itself.
                Problem::Unlike(expected) if key.contains("token") => {
                    format!("`{key}` is not text; expected {expected}")
                }
                Problem::Unlike(expected) => {
                    format!("`{key}` is {}; expected {expected}", describe(entry.value))
                }
                Problem::Bad(why) => format!("`{key}`: {why}"),
            };
            TomlError::at(self.text, entry.offset, problem)
        })
    }

    fn read_peers(&mut self, peers: &mut BTreeMap<u16, String>) -> Result<(), TomlError> {
        self.known.push("peers.1");
        let keys = self.entries.extract_if("peers.".to_owned().."peers/".to_owned(), |_, _| true);
        for (key, entry) in keys.collect::<Vec<_>>() {
            let id = &key["peers.".len()..];
            // One spelling per number, or `1` and `01` would be two keys of one node.
            let Some(node) = id.parse().ok().filter(|node: &u16| node.to_string() == id) else {
                let problem =
                    format!("`{key}`: a peer's key is its node id, a number from 1 to 1023");
                return Err(TomlError::at(self.text, entry.offset, problem));
            };
            peers.insert(node, self.value(&key, &entry)?);
        }
        Ok(())
    }

    fn read_limits(&mut self, limits: &mut Limits) -> Result<(), TomlError> {
        self.read("limits.leases", &mut limits.leases)?;
        self.read("limits.names_bytes", &mut limits.names_bytes)?;
        self.read("limits.waiters", &mut limits.waiters)?;
        self.read("limits.inflight", &mut limits.inflight)?;
        self.read("limits.peer_queue_bytes", &mut limits.peer_queue_bytes)?;
        self.read("limits.connections", &mut limits.connections)?;
        let per_connection = &mut limits.inflight_per_connection;
        self.read("limits.inflight_per_connection", per_connection)?;
        self.read("limits.acquires_per_second", &mut limits.acquires_per_second)?;
        Ok(())
    }

    fn read_access(&mut self, access: &mut Vec<Access>) -> Result<(), TomlError> {
        self.known.push("access");
        if let Some(offset) = self.first_of("access.") {
            let problem = "an entry of access is written `[[access]]`, in two brackets".to_owned();
            return Err(TomlError::at(self.text, offset, problem));
        }
        let Some(Entry { offset, value }) = self.entries.remove("access") else { return Ok(()) };
        let at = |offset, problem| Err(TomlError::at(self.text, offset, problem));
        let entries = value.as_array().into_iter().flatten();
        let tables = entries.map(|entry| Some((entry.span().start, entry.get_ref().as_table()?)));
        let Some(tables) = tables.collect::<Option<Vec<_>>>().filter(|_| value.is_array()) else {
            let what = describe(value);
            return at(offset, format!("`access` is {what}; expected tables, `[[access]]`"));
        };
        for (offset, table) in tables {
            let mut entry =
                Document { text: self.text, entries: BTreeMap::new(), known: Vec::new() };
            entry.flatten("access.", table);
            let (mut name, mut token, mut leases) = (None, None::<TokenHash>, None);
            let (mut names, mut may) = (Vec::<NamePattern>::new(), Vec::<Verb>::new());
            entry.read("access.name", &mut name)?;
            entry.read("access.token_sha256", &mut token)?;
            entry.read("access.names", &mut names)?;
            entry.read("access.may", &mut may)?;
            entry.read("access.leases", &mut leases)?;
            entry.finish()?;
            let Some(token) = token else {
                let problem = "`access.token_sha256` is missing; give the SHA-256 of a token";
                return at(offset, problem.to_owned());
            };
            if names.is_empty() || may.is_empty() {
                let key = if names.is_empty() { "names" } else { "may" };
                let example = if names.is_empty() { "\"jobs/*\"" } else { "\"acquire\", \"read\"" };
                let problem =
                    format!("`access.{key}` is missing or empty; write {key} = [{example}]");
                return at(offset, problem);
            }
            access.push(Access { name, token_sha256: token, names, may, leases });
        }
        Ok(())
    }

    /// Where the first key of a table begins.
    fn first_of(&self, prefix: &str) -> Option<usize> {
        let keys = self.entries.iter().filter(|(key, _)| key.starts_with(prefix));
        keys.map(|(_, entry)| entry.offset).min()
    }

    /// Refuses what nobody has taken, the first in the text.
    fn finish(self) -> Result<(), TomlError> {
        let is_table = |key: &str| {
            self.known
                .iter()
                .any(|known| known.strip_prefix(key).is_some_and(|k| k.starts_with('.')))
        };
        // A table may stand empty, with all its keys commented out.
        let is_empty = |key: &str, value: &DeValue<'_>| value.is_table() && is_table(key);
        let left = self.entries.iter().filter(|(key, entry)| !is_empty(key, entry.value));
        let Some((key, entry)) = left.min_by_key(|(_, entry)| entry.offset) else {
            return Ok(());
        };
        let table = key.split_once('.').map(|(table, _)| table);
        let problem = if is_table(key) {
            format!("`{key}` is {}; expected a table, `[{key}]`", describe(entry.value))
        } else if let Some(table) = table.filter(|table| self.known.contains(table)) {
            format!("`{table}` is a table here; expected a single value, `{table} = ...`")
        } else {
            let nearest = self.known.iter().min_by_key(|known| far(key, known));
            let nearest = nearest.expect("some keys are known");
            format!("unknown key `{key}`; the nearest known key is `{nearest}`")
        };
        Err(TomlError::at(self.text, entry.offset, problem))
    }
}

/// How unlike two keys are. The right name in the wrong table is near, and so is a part of it.
fn far(key: &str, known: &str) -> usize {
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
enum Problem {
    /// It is of another kind; this was expected.
    Unlike(String),
    /// It is of the right kind, and this is wrong with it.
    Bad(String),
}

trait FromToml: Sized {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem>;
}

impl<T: FromToml> FromToml for Option<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        T::from_toml(value).map(Some)
    }
}

impl FromToml for String {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| Problem::Unlike("text in quotes".to_owned()))
    }
}

impl FromToml for PathBuf {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
        let path = value.as_str().map(Self::from);
        path.ok_or_else(|| Problem::Unlike("a path in quotes".to_owned()))
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

/// What can be read from a text; its error says what was expected.
macro_rules! from_toml_text {
    ($($kind:ty => $expected:literal),*) => {$(
        impl FromToml for $kind {
            fn from_toml(value: &DeValue<'_>) -> Result<Self, Problem> {
                let expected = || Problem::Unlike($expected.to_owned());
                let text = value.as_str().ok_or_else(expected)?;
                text.parse::<Self>().map_err(|error| Problem::Bad(error.to_string()))
            }
        }
    )*};
}

from_toml_text! {
    ClientTls => "\"off\", \"server\" or \"mutual\"",
    NamePattern => "a pattern in quotes, such as \"jobs/*\"",
    TokenHash => "64 hexadecimal digits in quotes",
    Verb => "\"acquire\", \"read\" or \"admin\""
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

from_toml_number!(u16, u32, u64, usize);
