//! The scripts that clients sent to this node, by their SHA1.
//!
//! A script is parsed once. One that is not understood is kept too, so that `EVALSHA` says the same
//! as `EVAL`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::reply_error::ReplyError;
use super::script::{Script, sha1_hex};

/// The most bytes of scripts that are kept; beyond that, the oldest go. A library has a handful of
/// a few hundred bytes. A parsed script takes up to 24 times the memory of its text.
const SCRIPTS_BYTES_MAX: usize = 512 * 1024;

type Parsed = Result<Arc<Script>, Arc<str>>;

#[derive(Default)]
pub(in super::super) struct Scripts(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_sha: BTreeMap<String, Parsed>,
    /// Their SHA1s and lengths, the oldest first.
    order: VecDeque<(String, usize)>,
    bytes: usize,
}

impl Known {
    fn insert(&mut self, sha: &str, len: usize, parsed: Parsed) {
        if self.by_sha.insert(sha.to_owned(), parsed).is_none() {
            self.order.push_back((sha.to_owned(), len));
            self.bytes += len;
        }
        while self.bytes > SCRIPTS_BYTES_MAX
            && let Some((oldest, len)) = self.order.pop_front()
        {
            self.by_sha.remove(&oldest);
            self.bytes -= len;
        }
    }
}

impl Scripts {
    /// The script of `EVAL`.
    pub(super) fn evaluated(&self, text: &[u8]) -> Result<Arc<Script>, ReplyError<'static>> {
        self.parse(text).1.map_err(ReplyError::Script)
    }

    /// The script of `EVALSHA`.
    pub(super) fn named(&self, sha: &[u8]) -> Result<Arc<Script>, ReplyError<'static>> {
        match self.get(sha) {
            Some(parsed) => parsed.map_err(ReplyError::Script),
            None => Err(ReplyError::NoScript),
        }
    }

    /// Keeps a script. Returns its SHA1.
    pub(super) fn load(&self, text: &[u8]) -> String {
        self.parse(text).0
    }

    pub(super) fn knows(&self, sha: &[u8]) -> bool {
        self.get(sha).is_some()
    }

    pub(super) fn flush(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    fn get(&self, sha: &[u8]) -> Option<Parsed> {
        let sha = std::str::from_utf8(sha).ok()?.to_ascii_lowercase();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_sha.get(&sha).cloned()
    }

    fn parse(&self, text: &[u8]) -> (String, Parsed) {
        let sha = sha1_hex(text);
        if let Some(known) = self.get(sha.as_bytes()) {
            return (sha, known);
        }
        let why = |error| format!("{error} (SHA1 {sha})").into();
        let parsed: Parsed = Script::parse(text).map(Arc::new).map_err(why);
        let mut scripts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Even an empty text takes memory.
        scripts.insert(&sha, text.len().clamp(64, SCRIPTS_BYTES_MAX / 2), parsed.clone());
        (sha, parsed)
    }
}
