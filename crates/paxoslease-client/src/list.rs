//! Leases that are held, page by page: hints.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use paxoslease_holder::block_on;

use crate::client::Client;
use crate::command::Command;
use paxoslease_holder::AskError;
use paxoslease_holder::LeaseInfo;

/// How many leases a page has unless told otherwise.
const PAGE_LEN: u32 = 500;

/// Where a page begins. Every node counts in its own way, so this means something only as long as
/// the connection is the same; after that the list begins anew.
#[derive(Clone, Debug)]
pub(crate) struct PageStart {
    session: u64,
    cursor: Box<str>,
}

impl PageStart {
    const FIRST: &str = "0";

    /// What to ask for in this session.
    pub(crate) fn cursor(&self, session: u64) -> &str {
        if self.session == session { &self.cursor } else { Self::FIRST }
    }
}

/// One answer to LEASE.LIST.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) session: u64,
    /// Where the next page begins; `None` after the last.
    pub(crate) cursor: Option<Box<str>>,
    pub(crate) leases: Vec<LeaseInfo>,
}

/// Leases whose names begin with a prefix, from [`crate::Client::list`]. Asks for a page when it
/// needs one, so that a million leases stall nobody.
///
/// In the manner of SCAN: what is held all the while comes at least once; what comes or goes
/// meanwhile may be missed; a name may come twice, above all when the list has to go on at another
/// node.
#[must_use = "a list asks nothing until its first lease is asked for"]
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

    /// How many leases to ask for at a time.
    pub const fn page_len(mut self, page_len: u32) -> Self {
        self.page_len = page_len;
        self
    }

    /// The next lease; `None` after the last. Cancel-safe.
    ///
    /// # Errors
    /// When no node answers. Asking again goes on where it was.
    pub async fn next(&mut self) -> Result<Option<LeaseInfo>, AskError> {
        while self.leases.is_empty() {
            let Some(from) = &self.next_page else { return Ok(None) };
            let (from, prefix, count) = (from.clone(), self.prefix.clone(), self.page_len);
            let ask = |reply| Command::List { from, prefix, count, reply };
            let page = self.client.shared.ask(ask).await?;
            let session = page.session;
            self.next_page = page.cursor.map(|cursor| PageStart { session, cursor });
            self.leases = page.leases.into();
        }
        Ok(self.leases.pop_front())
    }

    /// As [`Self::next`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub fn next_blocking(&mut self) -> Result<Option<LeaseInfo>, AskError> {
        block_on(self.next())
    }

    /// All that is left of it, each name once and in order.
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

    /// As [`Self::all`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub fn all_blocking(self) -> Result<Vec<LeaseInfo>, AskError> {
        block_on(self.all())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({:?}, next page {:?})", self.prefix, self.next_page)
    }
}
