//! A shard's thread: real sockets and the real clock around its [`Driver`].
//!
//! One turn: wait, read what is ready, take what was posted, *then* read the clock, once.
//! [`Turn::run`] has the phases that follow: deliver, act until quiet, flush peers, flush clients,
//! wake.
//! Why an epoll loop of our own and no general runtime: ARCHITECTURE.md has the measurement.

mod conn;
mod conns;
mod listener;
mod resolve;
mod spin;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll};
use paxoslease_core::{Instant, Snapshot};

pub(crate) use conns::Conns;
use conns::{CLIENTS, LISTENER, WAKER};
pub(crate) use listener::Listener;
use resolve::LookupId;
use spin::Spin;

use crate::clock::{Clock, PauseDetector};
use crate::command::Command;
use crate::driver::Driver;
use crate::mailbox::Mailbox;
use crate::stable::{DurableFileWriter, HandedOver, RecordWriter};
use crate::tls::Stream;
use crate::turn::{Clients, Turn};

/// What other threads post to a shard's sockets.
pub(crate) enum SocketPost {
    /// A client another shard accepted.
    Client(mio::net::TcpStream),
    /// A connection another shard accepted, and what it read of it.
    Adopt { stream: Stream, unread: Vec<u8> },
    /// What became of looking up a name.
    Resolved { lookup: LookupId, outcome: io::Result<SocketAddr> },
}

pub(crate) type Post = crate::turn::Post<SocketPost>;

/// The mailbox of a shard that waits in `poll`.
pub(crate) fn mailbox(poll: &Poll) -> io::Result<Mailbox<Post>> {
    let waker = mio::Waker::new(poll.registry(), WAKER)?;
    Ok(Mailbox::new(Box::new(move || {
        if let Err(error) = waker.wake() {
            tracing::error!(%error, "a shard could not be woken");
        }
    })))
}

/// The writers of the data folder.
#[derive(Clone)]
pub(crate) struct Writers {
    pub(crate) record: Arc<RecordWriter>,
    /// For durable leases, if the node keeps them on disk.
    pub(crate) durable: Option<Arc<DurableFileWriter>>,
}

pub(crate) struct EventLoop {
    pub(crate) poll: Poll,
    pub(crate) conns: Conns,
    pub(crate) driver: Driver,
    pub(crate) mailbox: Arc<Mailbox<Post>>,
    /// For peers, in the first shard.
    pub(crate) listener: Option<Listener>,
    /// For clients, in the first shard, until the node stops.
    pub(crate) client_listener: Option<Listener>,
    pub(crate) clients: Clients<SocketPost>,
    pub(crate) clock: Clock,
    pub(crate) spin: Duration,
    pub(crate) disk: Option<Writers>,
}

/// Closes the mailbox of a thread that ends or panics. A node does not run without all its shards,
/// so a panic stops the others.
struct CloseOnDrop {
    own: Arc<Mailbox<Post>>,
    all: Vec<Arc<Mailbox<Post>>>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        // Dropping a request tells its caller.
        drop(self.own.close());
        if std::thread::panicking() {
            tracing::error!("a shard panicked, so this node stops");
            for mailbox in &self.all {
                // A shard that left already is gone.
                let _left = mailbox.post(Post::Command(Command::Stop));
            }
        }
    }
}

impl EventLoop {
    /// Runs until the driver was told to leave, and hands on its leases (R4).
    pub(crate) fn run(mut self) -> Option<Snapshot> {
        let (own, all) = (Arc::clone(&self.mailbox), self.conns.mailboxes.clone());
        let _close = CloseOnDrop { own, all };
        let mut events = Events::with_capacity(256);
        let mut posts = Vec::new();
        let mut spin = Spin::new(self.spin);
        let mut pauses = PauseDetector::default();
        if let Some(listener) = &mut self.listener {
            listener.register(self.poll.registry(), LISTENER);
        }
        if let Some(listener) = &mut self.client_listener {
            listener.register(self.poll.registry(), CLIENTS);
        }
        let mut now = self.clock.now();
        loop {
            let wake_at = self.driver.next_at().min(self.clients.next_at());
            let wake_at = wake_at.min(self.conns.next_at());
            let done_at = self.wait(&mut events, &mut spin, wake_at);
            self.driver.worked(done_at.since(now));
            pauses.expect_back_by(wake_at.max(now));
            now = self.receive(&events, &mut posts);
            if let Some(span) = pauses.back(now) {
                self.driver.paused(span);
            }
            let Self { driver, conns: sockets, clients, .. } = &mut self;
            Turn { now, driver, sockets, clients }.run(&mut posts);
            self.wake(now);
            if self.clients.left {
                self.client_listener = None;
            }
            let done = self.clients.are_done();
            if self.driver.may_go(now, done) {
                return self.leave(now);
            }
        }
    }

    /// Blocks until something is ready, or until `wake_at`. Returns when it began to wait.
    fn wait(&mut self, events: &mut Events, spin: &mut Spin, wake_at: Instant) -> Instant {
        let done_at = self.clock.now();
        events.clear();
        let unfinished = self.conns.unfinished()
            || [&self.listener, &self.client_listener].into_iter().flatten().any(|one| one.more);
        if unfinished || self.mailbox.is_filled() {
            self.poll_for(events, Duration::ZERO);
            return done_at;
        }
        let awaits_votes = self.driver.awaits_votes();
        if wake_at > done_at && spin.is_on(awaits_votes) {
            let (poll, mailbox) = (&mut self.poll, &self.mailbox);
            let ready = |events: &mut Events| {
                // An interrupted poll finds nothing, and the next one is near.
                let _interrupted = poll.poll(events, Some(Duration::ZERO));
                !events.is_empty() || mailbox.is_filled()
            };
            if spin.find(&self.clock, awaits_votes, wake_at, events, ready) {
                return done_at;
            }
        }
        if self.mailbox.fall_asleep() {
            let span = wake_at.since(self.clock.now());
            self.poll_for(events, span);
        }
        self.mailbox.awake();
        done_at
    }

    fn poll_for(&mut self, events: &mut Events, span: Duration) {
        if let Err(error) = self.poll.poll(events, Some(span))
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "polling failed");
        }
    }

    /// Reads what is ready and takes what was posted, and then reads the clock. With an earlier
    /// reading, a message would be judged as of an instant before it came.
    fn receive(&mut self, events: &Events, posts: &mut Vec<Post>) -> Instant {
        for event in events {
            match event.token() {
                WAKER => {}
                LISTENER => self.listener.iter_mut().for_each(|listener| listener.more = true),
                CLIENTS => self.client_listener.iter_mut().for_each(|one| one.more = true),
                token => self.conns.note(token, event),
            }
        }
        if let Some(listener) = &mut self.listener {
            listener.accept(|stream| self.conns.accepted(stream));
        }
        if let Some(listener) = &mut self.client_listener {
            listener.accept(|stream| self.conns.distribute(stream));
        }
        self.conns.read_ready();
        self.mailbox.take(posts);
        self.clock.now()
    }

    /// Asks the disk for what must be durable, and wakes the callers that have an answer.
    fn wake(&mut self, now: Instant) {
        let Self { driver, disk, .. } = self;
        if let Some(Writers { record: writer, durable }) = disk {
            while let Some(record) = driver.next_record() {
                writer.ask(driver.shard_index().into(), record);
            }
            if let Some(configuration) = driver.next_configuration() {
                writer.ask_configuration(configuration);
            }
            let shard = driver.shard_id();
            for (sequence, write) in driver.take_durable_writes() {
                let durable = durable.as_ref().expect("a shard knows whether its node has a disk");
                durable.hand_over(HandedOver { shard, sequence, now, write });
            }
        }
        let mut woken = false;
        for waker in self.driver.wakers() {
            waker.wake();
            woken = true;
        }
        if woken {
            // The woken threads of this core go first: what they ask joins the next batch.
            std::thread::yield_now();
        }
    }

    fn leave(mut self, now: Instant) -> Option<Snapshot> {
        self.driver.act(now);
        self.driver.flush(&mut self.conns, now);
        self.driver.say_farewell(&mut self.conns);
        self.driver.wakers().for_each(std::task::Waker::wake);
        self.driver.stop(now)
    }
}
