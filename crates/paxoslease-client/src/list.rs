//! Leases that are held, page by page: hints.

use std::collections::VecDeque;
use std::fmt;

use pollster::block_on;

use crate::client::Client;
use crate::command::Command;
use crate::error::AskError;
use crate::watch::Sighting;

/// How many leases a page has unless told otherwise.
const PAGE_LEN: u32 = 500;

/// One answer to LEASE.LIST.
#[derive(Debug)]
pub(crate) struct Page {
    /// Where the next page begins; `None` after the last.
    pub(crate) cursor: Option<Box<str>>,
    pub(crate) leases: Vec<Sighting>,
}

/// Leases whose names begin with a prefix, from [`crate::Client::list`]. Asks for a page when it
/// needs one, so that a million leases stall nobody.
#[must_use = "a list asks nothing until its first lease is asked for"]
pub struct List {
    client: Client,
    prefix: Box<str>,
    page_len: u32,
    /// Where the next page begins; `None` after the last.
    cursor: Option<Box<str>>,
    leases: VecDeque<Sighting>,
}

impl List {
    pub(crate) fn new(client: Client, prefix: &str) -> Self {
        let cursor = Some("0".into());
        Self { client, prefix: prefix.into(), page_len: PAGE_LEN, cursor, leases: VecDeque::new() }
    }

    /// How many leases to ask for at a time.
    pub const fn page_len(mut self, page_len: u32) -> Self {
        self.page_len = page_len;
        self
    }

    /// The next lease; `None` after the last. Cancel-safe.
    ///
    /// # Errors
    /// When no node answers. Asking again goes on where it was.
    pub async fn next(&mut self) -> Result<Option<Sighting>, AskError> {
        while self.leases.is_empty() {
            let Some(cursor) = &self.cursor else { return Ok(None) };
            let (cursor, prefix, count) = (cursor.clone(), self.prefix.clone(), self.page_len);
            let ask = |reply| Command::List { cursor, prefix, count, reply };
            let page = self.client.shared.ask(ask).await?;
            self.cursor = page.cursor;
            self.leases = page.leases.into();
        }
        Ok(self.leases.pop_front())
    }

    /// As [`Self::next`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub fn next_blocking(&mut self) -> Result<Option<Sighting>, AskError> {
        block_on(self.next())
    }

    /// All that is left of it.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub async fn all(mut self) -> Result<Vec<Sighting>, AskError> {
        let mut all = Vec::new();
        while let Some(lease) = self.next().await? {
            all.push(lease);
        }
        Ok(all)
    }

    /// As [`Self::all`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub fn all_blocking(self) -> Result<Vec<Sighting>, AskError> {
        block_on(self.all())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({:?}, next page {:?})", self.prefix, self.cursor)
    }
}
