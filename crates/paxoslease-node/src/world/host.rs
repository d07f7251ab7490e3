//! A simulated machine: its clock and disk, which outlive its processes, and the process that runs
//! there, if one does. A process is what the threads of a real node are: shards with mailboxes,
//! each taking turns around the real [`Driver`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;

use paxoslease_core::{Instant, Rules, Snapshot};

use super::At;
use super::agenda::Agenda;
use super::clock::HostClock;
use super::lines::{AtNetwork, Lines};
use super::network::{EndId, Network};
use super::writer::Writer;
use crate::command::Command;
use crate::config::Config;
use crate::driver::Driver;
use crate::front::Waiting;
use crate::mailbox::Mailbox;
use crate::node::Node;
use crate::stable::MemoryDisk;
use paxoslease_holder::transport::Ticket;

pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) rules: Rules,
    pub(crate) clock: HostClock,
    pub(crate) disk: Option<MemoryDisk>,
    pub(crate) process: Option<Process>,
    /// Stands still, as by SIGSTOP; the clock goes on.
    pub(crate) paused: bool,
    /// Tells runs of it apart.
    pub(crate) run: u64,
    /// Leases of processes that were killed: over when their time is.
    pub(crate) orphans: Vec<Arc<Ticket>>,
}

pub(crate) struct Process {
    pub(crate) node: Node,
    pub(crate) shards: Vec<Option<Shard>>,
    /// What the shards that left hand on (R4).
    pub(crate) snapshots: Vec<Option<Snapshot>>,
    pub(crate) writer: Option<Writer>,
}

/// About how long a message is, in bytes.
const MESSAGE_LEN: usize = 40;

pub(crate) struct Shard {
    pub(crate) driver: Driver,
    pub(crate) mailbox: Letterbox,
    waiting: Arc<Waiting>,
    lines: Lines,
    /// Ends with something new.
    pub(crate) ready: BTreeSet<EndId>,
    /// It is at work until then, and has no turn before.
    pub(crate) busy_until: At,
    /// When its next turn is; others are stale.
    pub(crate) turn_at: At,
    /// It has had its last turn.
    pub(crate) leaving: bool,
}

/// Nobody posts to a shard that is gone.
pub(crate) struct Letterbox(pub(crate) Arc<Mailbox<Command>>);

impl Drop for Letterbox {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// What a shard's turn may touch beside the shard.
pub(crate) struct Surroundings<'a> {
    pub(crate) network: &'a mut Network,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) writer: Option<&'a mut Writer>,
    /// True time.
    pub(crate) at: At,
    /// Host and shard.
    pub(crate) own: (usize, usize),
}

impl Shard {
    pub(crate) fn new(
        driver: Driver,
        mailbox: Arc<Mailbox<Command>>,
        waiting: Arc<Waiting>,
    ) -> Self {
        let (mailbox, lines, ready) = (Letterbox(mailbox), Lines::default(), BTreeSet::new());
        let (busy_until, turn_at, leaving) = (0, At::MAX, false);
        Self { driver, mailbox, waiting, lines, ready, busy_until, turn_at, leaving }
    }

    /// One turn, as `EventLoop::turn` takes it. Says how many commands and messages it was for.
    pub(crate) fn turn(&mut self, now: Instant, around: Surroundings<'_>) -> u64 {
        let Surroundings { network, agenda, writer, at, own } = around;
        let driver = &mut self.driver;
        let mut sockets = AtNetwork { lines: &mut self.lines, network, agenda, now: at, own };
        let mut bytes = 0;
        for end in std::mem::take(&mut self.ready) {
            bytes += sockets.advance(driver, now, end);
        }
        let mut commands = Vec::new();
        self.mailbox.0.take(&mut commands);
        let work = (commands.len() + bytes / MESSAGE_LEN) as u64;
        for command in commands {
            driver.command(now, command);
        }
        driver.tick(&mut sockets, now);
        self.waiting.settle(driver, now);
        driver.flush(&mut sockets);
        if let Some(writer) = writer {
            while let Some(record) = driver.next_record() {
                writer.ask(own.1, record);
            }
        }
        driver.wakers().for_each(Waker::wake);
        self.leaving = driver.may_go(now, true);
        if self.leaving {
            driver.act(now);
            driver.flush(&mut sockets);
            driver.wakers().for_each(Waker::wake);
            sockets.close_all();
        }
        work
    }
}
