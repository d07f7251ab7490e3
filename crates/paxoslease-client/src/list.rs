//! The list of held leases, page by page: hints.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use paxoslease_holder::block_on;

use crate::client::Client;
use crate::command::{Command, Query};
use paxoslease_holder::AskError;
use paxoslease_holder::LeaseInfo;

/// The default number of leases per page.
const PAGE_LEN: u32 = 500;

/// Where a page begins. Each node has its own cursors, so a cursor is valid in one session only.
/// In another session, the list starts again.
#[derive(Clone, Debug)]
pub(crate) struct PageStart {
    session: u64,
    cursor: Box<str>,
}

impl PageStart {
    const FIRST: &str = "0";

    /// The cursor to send in this session.
    pub(crate) fn cursor(&self, session: u64) -> &str {
        if self.session == session { &self.cursor } else { Self::FIRST }
    }
}

/// One reply to LEASE.LIST.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) session: u64,
    /// Where the next page begins; `None` after the last.
    pub(crate) cursor: Option<Box<str>>,
    pub(crate) leases: Vec<LeaseInfo>,
}

/// Leases whose names begin with a prefix, from [`crate::Client::list`]. Requests a page when it
/// needs one, so that a list of a million leases does not stall the node.
///
/// The guarantees are those of SCAN: a lease that is held all the time comes at least once; a lease
/// that begins or ends meanwhile may be missing; a name may come twice, mostly when the list
/// continues at another node.
#[must_use = "a list sends no request before `next` or `all`"]
pub struct List {
    client: Client,
    prefix: Box<str>,
    page_len: u32,
    /// Where the next page begins; `None` after the last.
    next_page: Option<PageStart>,
    leases: VecDeque<LeaseInfo>,
}

impl List {
    pub(crate) fn new(client: Client, prefix: &str) -> Self {
        let next_page = Some(PageStart { session: 0, cursor: PageStart::FIRST.into() });
        let (prefix, leases) = (prefix.into(), VecDeque::new());
        Self { client, prefix, page_len: PAGE_LEN, next_page, leases }
    }

    /// The number of leases per page; 500 by default.
    pub const fn page_len(mut self, page_len: u32) -> Self {
        self.page_len = page_len;
        self
    }

    /// The next lease; `None` after the last. Cancel-safe.
    ///
    /// # Errors
    /// When no node answers. The next call continues at the same place.
    pub async fn next(&mut self) -> Result<Option<LeaseInfo>, AskError> {
        while self.leases.is_empty() {
            let Some(from) = &self.next_page else { return Ok(None) };
            let (from, prefix, count) = (from.clone(), self.prefix.clone(), self.page_len);
            let command = |reply| Command::Query(Query::List { from, prefix, count, reply });
            let page = self.client.shared.ask(command).await?;
            let session = page.session;
            self.next_page = page.cursor.map(|cursor| PageStart { session, cursor });
            self.leases = page.leases.into();
        }
        Ok(self.leases.pop_front())
    }

    /// Like [`Self::next`], but blocks this thread.
    pub fn next_blocking(&mut self) -> Result<Option<LeaseInfo>, AskError> {
        block_on(self.next())
    }

    /// All remaining leases, each name once and in order.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub async fn all(mut self) -> Result<Vec<LeaseInfo>, AskError> {
        let mut all = BTreeMap::new();
        while let Some(lease) = self.next().await? {
            all.insert(lease.name.clone(), lease);
        }
        Ok(all.into_values().collect())
    }

    /// Like [`Self::all`], but blocks this thread.
    pub fn all_blocking(self) -> Result<Vec<LeaseInfo>, AskError> {
        block_on(self.all())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({:?}, next page {:?})", self.prefix, self.next_page)
    }
}
