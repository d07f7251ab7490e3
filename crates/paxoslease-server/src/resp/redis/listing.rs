//! KEYS, SCAN, DBSIZE and FLUSHDB: lists of the leases that this node has seen, page by page.

use paxoslease_node::front::{Answer, Cursor, PageMax, Request as LeaseRequest};

use super::super::Turn;
use super::super::execute::decimal;
use super::super::pending::RequestId;
use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::Outcome;
use super::channels::PATTERN_LEN_MAX;
use super::glob::{glob, literal_prefix};
use super::keys::{Keys, key_of, prefix};
use super::operation::put_reply;
use super::program::{First, Program};
use super::script::Reply;
use crate::config::{NamePattern, Verb};

/// Leases on a page, by default and at most.
const COUNT: u32 = 100;
const COUNT_MAX: u32 = 1000;
/// The most keys that KEYS replies, and that FLUSHDB deletes at a time.
const FOUND_MAX: usize = 4096;

/// What becomes of the keys on a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Scan,
    Keys,
    Count,
    Flush,
}

/// A list of keys that is being made.
pub(in super::super) struct KeyList {
    purpose: Purpose,
    pattern: Vec<u8>,
    /// `None` for all.
    database: Option<u8>,
    prefix: Box<str>,
    found: Vec<Vec<u8>>,
}

impl KeyList {
    /// The key of a lease, if it belongs to the list.
    fn key<'a>(&self, name: &'a str) -> Option<&'a str> {
        let key = match self.database {
            None => name,
            Some(database) => key_of(database, name)?,
        };
        glob(&self.pattern, key.as_bytes()).then_some(key)
    }
}

impl Session {
    pub(super) fn list_keys<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        pattern: &'a [u8],
    ) -> Outcome<'a> {
        self.list_for(turn, Purpose::Keys, pattern, Some(self.database), Cursor::START, COUNT_MAX)
    }

    pub(super) fn count_keys(&mut self, turn: &mut Turn<'_, '_>) -> Outcome<'static> {
        self.list_for(turn, Purpose::Count, b"*", Some(self.database), Cursor::START, COUNT_MAX)
    }

    pub(super) fn flush_keys(&mut self, turn: &mut Turn<'_, '_>, is_all: bool) -> Outcome<'static> {
        let database = (!is_all).then_some(self.database);
        self.list_for(turn, Purpose::Flush, b"*", database, Cursor::START, COUNT_MAX)
    }

    pub(super) fn scan<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let cursor = std::str::from_utf8(args[0]).ok().and_then(|text| text.parse::<Cursor>().ok());
        let cursor = cursor.ok_or_else(|| ReplyError::Redis("ERR invalid cursor".to_owned()))?;
        let (mut pattern, mut count): (&[u8], u32) = (b"*", COUNT);
        for option in args[1..].chunks(2) {
            match option {
                [key, value] if key.eq_ignore_ascii_case(b"MATCH") => pattern = value,
                [key, value] if key.eq_ignore_ascii_case(b"COUNT") => {
                    let number = decimal(value).filter(|count| *count > 0);
                    let number = number.ok_or(ReplyError::Number(value, "count above 0"))?;
                    count = u32::try_from(number).unwrap_or(COUNT_MAX).min(COUNT_MAX);
                }
                // All keys are strings.
                [key, value] if key.eq_ignore_ascii_case(b"TYPE") => {
                    if !value.eq_ignore_ascii_case(b"string") {
                        pattern = b"";
                    }
                }
                _ => return Err(ReplyError::Redis("ERR syntax error".to_owned())),
            }
        }
        self.list_for(turn, Purpose::Scan, pattern, Some(self.database), cursor, count)
    }

    fn list_for<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        purpose: Purpose,
        pattern: &[u8],
        database: Option<u8>,
        cursor: Cursor,
        count: u32,
    ) -> Outcome<'a> {
        if pattern.len() > PATTERN_LEN_MAX {
            return Err(ReplyError::PatternLen(PATTERN_LEN_MAX));
        }
        let literal = String::from_utf8_lossy(literal_prefix(pattern)).into_owned();
        let prefix = database.map(prefix).unwrap_or_default() + &literal;
        let pattern = pattern.to_vec();
        if let Ok(readable) = format!("{prefix}*").parse::<NamePattern>() {
            self.admit_read(turn, &readable)?;
        }
        let prefix = prefix.into_boxed_str();
        let list = KeyList { purpose, pattern, database, prefix, found: Vec::new() };
        let ask = self.ask(turn, None, None)?;
        self.listing = Some(ask);
        self.ask_page(turn, ask, &list, cursor, count);
        turn.common.pending.get(ask).keys = Some(Box::new(list));
        Ok(())
    }

    fn ask_page(
        &self,
        turn: &mut Turn<'_, '_>,
        ask: RequestId,
        list: &KeyList,
        cursor: Cursor,
        count: u32,
    ) {
        let (prefix, filter) = (list.prefix.clone(), self.readable(turn.common));
        let max = PageMax::leases(count);
        turn.shard.ask(ask as u64, LeaseRequest::List { cursor, prefix, filter, max });
    }

    /// A page has come: asks for the next one, or replies.
    pub(in super::super) fn key_page(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: u64,
        ask: RequestId,
        mut list: Box<KeyList>,
        page: &Answer,
    ) {
        let Answer::Listed { leases, next } = page else { return };
        for seen in leases {
            let name = seen.label.name();
            // The rules may have changed since the page was asked for.
            let may_see = turn.common.rules.allows(self.place(), Verb::Read, name.as_str());
            if let Some(key) = list.key(name.as_str()).filter(|_| may_see) {
                let is_flush = list.purpose == Purpose::Flush;
                let found = if is_flush { name.as_bytes() } else { key.as_bytes() };
                list.found.push(found.to_vec());
            }
        }
        let is_full = list.purpose != Purpose::Count && list.found.len() > FOUND_MAX;
        if let Some(next) = next
            && list.purpose != Purpose::Scan
            && !is_full
        {
            self.ask_page(turn, ask, &list, *next, COUNT_MAX);
            turn.common.pending.get(ask).keys = Some(list);
            return;
        }
        turn.common.pending.remove(ask);
        self.end_listing(turn, ask);
        let KeyList { purpose, mut found, .. } = *list;
        let reply = match purpose {
            Purpose::Flush if !found.is_empty() => {
                found.truncate(FOUND_MAX);
                return self.flush_found(turn, command, found);
            }
            Purpose::Flush => Reply::Status(b"OK".to_vec()),
            Purpose::Count => Reply::Integer(found.len() as i64),
            Purpose::Keys if is_full => {
                let text = format!("ERR more than {FOUND_MAX} keys match; use SCAN");
                Reply::Error(text.into_bytes())
            }
            Purpose::Keys => Reply::Array(found.into_iter().map(Reply::Bulk).collect()),
            Purpose::Scan => {
                let next = next.map_or_else(|| "0".to_owned(), |next| next.to_string());
                let found = Reply::Array(found.into_iter().map(Reply::Bulk).collect());
                Reply::Array(vec![Reply::Bulk(next.into_bytes()), found])
            }
        };
        self.replied(turn, command, Vec::new(), |protocol, out| put_reply(&reply, protocol, out));
    }

    /// Deletes the leases with these names.
    fn flush_found(&mut self, turn: &mut Turn<'_, '_>, command: u64, names: Vec<Vec<u8>>) {
        let mut keys = Keys::new(0, true);
        keys.max = FOUND_MAX;
        let program = Program::Flush(names);
        self.operate_for(turn, command, program, keys, First::LookHere);
    }
}
