//! The list of held leases, page by page: hints.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use paxoslease_holder::block_on;
use paxoslease_holder::transport::prefix_of;

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

/// Leases whose names begin with a prefix, from [`Client::list`]. Requests a page when it
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
    /// The request for the next page, if it is under way.
    asked: Option<Answer>,
}

type Answer = oneshot::Receiver<Result<Page, AskError>>;

impl List {
    pub(crate) fn new(client: Client, prefix: &str) -> Self {
        let next_page = Some(PageStart { session: 0, cursor: PageStart::FIRST.into() });
        let (prefix, leases) = (prefix_of(prefix).into(), VecDeque::new());
        Self { client, prefix, page_len: PAGE_LEN, next_page, leases, asked: None }
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
    pub async fn next(&mut self) -> Option<Result<LeaseInfo, AskError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Like [`Self::next`], but blocks this thread.
    pub fn next_blocking(&mut self) -> Option<Result<LeaseInfo, AskError>> {
        block_on(self.next())
    }

    /// Asks for the page that begins at `from`.
    fn ask(&self, from: PageStart) -> Answer {
        let (reply, answer) = oneshot::channel();
        let (prefix, count) = (self.prefix.clone(), self.page_len);
        // A client that was shut down drops the question, which the answer tells.
        let query = Query::List { from, prefix, count, reply };
        let _stopped = self.client.shared.post(Command::Query(query));
        answer
    }

    /// All remaining leases, each name once and in order.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub async fn all(mut self) -> Result<Vec<LeaseInfo>, AskError> {
        let mut all = BTreeMap::new();
        while let Some(lease) = self.next().await {
            let lease = lease?;
            all.insert(lease.name.clone(), lease);
        }
        Ok(all.into_values().collect())
    }

    /// Like [`Self::all`], but blocks this thread.
    pub fn all_blocking(self) -> Result<Vec<LeaseInfo>, AskError> {
        block_on(self.all())
    }
}

/// The same as [`List::next`].
impl Stream for List {
    type Item = Result<LeaseInfo, AskError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.leases.is_empty() {
            let Some(from) = self.next_page.clone() else { return Poll::Ready(None) };
            let mut asked = self.asked.take().unwrap_or_else(|| self.ask(from));
            let Poll::Ready(answer) = Pin::new(&mut asked).poll(context) else {
                self.asked = Some(asked);
                return Poll::Pending;
            };
            let page = match answer.unwrap_or(Err(AskError::Stopped)) {
                Ok(page) => page,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let session = page.session;
            self.next_page = page.cursor.map(|cursor| PageStart { session, cursor });
            self.leases = page.leases.into();
        }
        Poll::Ready(self.leases.pop_front().map(Ok))
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({:?}, next page {:?})", self.prefix, self.next_page)
    }
}
