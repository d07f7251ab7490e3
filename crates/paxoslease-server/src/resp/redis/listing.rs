//! KEYS, SCAN, DBSIZE and FLUSHDB, and KEYS in scripts: lists of the leases that this node has
//! seen, page by page.

use paxoslease_node::front::{Answer, Cursor, LiveLease, PageMax, Request as LeaseRequest};

use super::super::execute::decimal;
use super::super::pending::RequestId;
use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::super::{Deferred, Turn};
use super::Outcome;
use super::glob::Glob;
use super::keys::{Keys, SCRIPT_KEYS_MAX, key_of, prefix};
use super::operation::put_reply;
use super::program::{First, Program};
use super::script::Reply;
use crate::config::{NamePattern, Verb};

/// Leases on a page, by default and at most.
const COUNT: u32 = 100;
const COUNT_MAX: u32 = 1000;
/// The most bytes of keys that KEYS replies, each with [`KEY_BYTES`] for itself: as many as a page
/// of LEASE.LIST has.
const FOUND_BYTES_MAX: usize = PageMax::BYTES;
const KEY_BYTES: usize = 16;
/// The most keys that FLUSHDB deletes at a time. Only test suites may flush.
const FLUSHED_MAX: usize = 4096;
/// The steps of a name besides those of the pattern.
const NAME_STEPS: usize = 64;

/// What becomes of the keys on a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Scan,
    Keys,
    Count,
    Flush,
    Script,
}

/// A list of keys that is being made.
pub(in super::super) struct KeyList {
    purpose: Purpose,
    pattern: Glob,
    /// `None` for all.
    database: Option<u8>,
    prefix: Box<str>,
    /// The keys; none if they are only counted.
    found: Vec<Vec<u8>>,
    /// Their bytes, with [`KEY_BYTES`] for each.
    bytes: usize,
    count: i64,
    /// The script that needs them.
    script: Option<(Program, Keys)>,
}

/// A page of leases, or what is left of it.
pub(in super::super) struct KeyPage {
    pub(in super::super) leases: Vec<LiveLease>,
    /// Where the next page begins.
    pub(in super::super) next: Option<Cursor>,
}

impl KeyList {
    /// Adds the key of a lease, if it belongs to the list. Returns the steps that this took.
    fn look_at(&mut self, name: &str) -> usize {
        let key = match self.database {
            None => Some(name),
            Some(database) => key_of(database, name),
        };
        let Some(key) = key else { return NAME_STEPS };
        let compared = self.pattern.compare(key.as_bytes());
        if compared.is_match {
            self.count += 1;
            match self.purpose {
                Purpose::Count => {}
                Purpose::Flush => self.found.push(name.as_bytes().to_vec()),
                Purpose::Scan | Purpose::Keys | Purpose::Script => {
                    self.bytes += key.len() + KEY_BYTES;
                    self.found.push(key.as_bytes().to_vec());
                }
            }
        }
        NAME_STEPS + compared.steps
    }

    /// Whether it needs no more pages. A page is never too long for SCAN, which replies it.
    fn is_full(&self) -> bool {
        match self.purpose {
            Purpose::Scan => true,
            Purpose::Keys => self.bytes > FOUND_BYTES_MAX,
            Purpose::Script => self.found.len() > SCRIPT_KEYS_MAX,
            Purpose::Flush => self.found.len() >= FLUSHED_MAX,
            Purpose::Count => false,
        }
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

    /// Runs a script once the keys are known that it lists.
    pub(super) fn list_for_script(
        &mut self,
        turn: &mut Turn<'_, '_>,
        pattern: &[u8],
        script: (Program, Keys),
    ) -> Outcome<'static> {
        let (database, start) = (Some(self.database), Cursor::START);
        self.list_for(turn, Purpose::Script, pattern, database, start, COUNT_MAX)?;
        let list = self.listing.and_then(|ask| turn.common.pending.get(ask).keys.as_mut());
        list.expect("the list has just begun").script = Some(script);
        Ok(())
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
        let pattern = Glob::new(pattern).map_err(ReplyError::Glob)?;
        let literal = String::from_utf8_lossy(pattern.literal_prefix()).into_owned();
        let prefix = database.map(prefix).unwrap_or_default() + &literal;
        if let Ok(readable) = format!("{prefix}*").parse::<NamePattern>() {
            self.admit_read(turn, &readable)?;
        }
        let prefix = prefix.into_boxed_str();
        let found = Vec::new();
        let script = None;
        let list =
            KeyList { purpose, pattern, database, prefix, found, bytes: 0, count: 0, script };
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

    /// A page has come: looks at its names as far as the steps of this turn go. Then asks for the
    /// next page, or replies.
    pub(in super::super) fn key_page(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: u64,
        ask: RequestId,
        mut list: Box<KeyList>,
        mut page: KeyPage,
    ) {
        // The rules may have changed since the page was asked for.
        let viewer = self.place();
        let mut looked = 0;
        while let Some(seen) = page.leases.get(looked)
            && !turn.common.steps.are_spent()
        {
            let name = seen.label.name();
            if turn.common.rules.allows(viewer, Verb::Read, name.as_str()) {
                turn.common.steps.spend(list.look_at(name.as_str()));
            }
            looked += 1;
        }
        if looked < page.leases.len() {
            page.leases.drain(..looked);
            turn.common.pending.get(ask).keys = Some(list);
            let KeyPage { leases, next } = page;
            let rest = Answer::Listed { leases, next };
            return turn.common.deferred.push_back(Deferred::Answer(ask, rest));
        }
        if let Some(next) = page.next
            && !list.is_full()
        {
            self.ask_page(turn, ask, &list, next, COUNT_MAX);
            turn.common.pending.get(ask).keys = Some(list);
            return;
        }
        turn.common.pending.remove(ask);
        self.end_listing(turn, ask);
        let is_full = list.is_full();
        let KeyList { purpose, pattern, mut found, count, script, .. } = *list;
        let reply = match purpose {
            Purpose::Flush if !found.is_empty() => {
                found.truncate(FLUSHED_MAX);
                return self.flush_found(turn, command, found);
            }
            Purpose::Flush => Reply::Status(b"OK".to_vec()),
            Purpose::Script if is_full => {
                let text = format!("ERR a script lists at most {SCRIPT_KEYS_MAX} keys");
                Reply::Error(text.into_bytes())
            }
            Purpose::Script => {
                let (program, mut keys) = script.expect("such a list is made for a script");
                for key in &found {
                    // Later commands on them come after the script.
                    let _too_many = keys.place(key);
                }
                keys.listed = Some((pattern.as_bytes().to_vec(), found));
                self.operate_for(turn, command, program, keys, First::LookHere);
                return;
            }
            Purpose::Count => Reply::Integer(count),
            Purpose::Keys if is_full => {
                let text = "ERR the keys that match have more than 64 KiB; use SCAN";
                Reply::Error(text.as_bytes().to_vec())
            }
            Purpose::Keys => Reply::Array(found.into_iter().map(Reply::Bulk).collect()),
            Purpose::Scan => {
                let next = page.next.map_or_else(|| "0".to_owned(), |next| next.to_string());
                let found = Reply::Array(found.into_iter().map(Reply::Bulk).collect());
                Reply::Array(vec![Reply::Bulk(next.into_bytes()), found])
            }
        };
        self.replied(turn, command, Vec::new(), |protocol, out| put_reply(&reply, protocol, out));
    }

    /// Deletes the leases with these names.
    fn flush_found(&mut self, turn: &mut Turn<'_, '_>, command: u64, names: Vec<Vec<u8>>) {
        let mut keys = Keys::new(0, true);
        keys.max = FLUSHED_MAX;
        let program = Program::Flush(names);
        self.operate_for(turn, command, program, keys, First::LookHere);
    }
}
