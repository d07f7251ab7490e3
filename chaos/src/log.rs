//! What happened in a run, as its processes wrote it down: one file per process, one line of JSON
//! per event, every time in nanoseconds of the host's `CLOCK_MONOTONIC`, which all of them share
//! and which goes on while one is stopped.
//!
//! Owns the events and their order on disk; [`read`] reads them back. A line is one `write`, so a
//! process that is killed leaves at most its last line unfinished. Deliberately lacks judgement:
//! what the events prove is for [`crate::check`].
//!
//! *Why a crash hides nothing.* [`What::Asked`] is written before a request leaves; a request whose
//! answer never came gives no belief. [`What::Held`] is written after the answer and before
//! anything is done with it, so that every deed of a holder is preceded by its belief.
//! [`What::Ended`] is written before a release leaves (P6). Where only the clock ends a belief it
//! is logged up to the end that the clock rule gives (T2), in advance: by RESP and HTTP, and by
//! the library up to where its thread may give up by itself. What it is seen to hold beyond that,
//! and a command that ends when it is killed, is logged up to the last look, by [`Log::extend`].

mod reading;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use reading::{ReadError, Records, read};

/// A reading of the host's `CLOCK_MONOTONIC`, in nanoseconds.
pub type Nanos = u64;

/// The host's time.
#[must_use]
pub fn now() -> Nanos {
    let reading = clock_gettime(ClockId::Monotonic);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}

/// The name of a log ends in this.
pub const EXTENSION: &str = "jsonl";

/// By which way a client speaks to the cell.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `paxoslease-client`, with guards that renew themselves.
    Library,
    /// RESP by hand, over one connection at a time.
    Resp,
    /// HTTP and JSON.
    Http,
    /// A command under `paxoslease lock`; what it believes is that it may run.
    Lock,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Library, Self::Resp, Self::Http, Self::Lock];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "library",
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Lock => "lock",
        })
    }
}

/// Something that happened, when, and to which name if it was about one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When: the host's time.
    pub at: Nanos,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A client began.
    Began {
        /// Which.
        client: String,
        /// How it speaks to the cell.
        kind: Kind,
        /// Draws what it does.
        seed: u64,
        /// The only node it speaks to, if there is such a one.
        #[serde(default)]
        through: Option<u16>,
    },
    /// A client is about to send a request for a lease.
    Asked(Ask),
    /// It was not granted, because somebody else holds it.
    Denied {
        /// What was asked.
        #[serde(flatten)]
        ask: Ask,
        /// When the request was about to leave.
        asked_at: Nanos,
        /// Whose tenure stood in the way, where the refusal itself says so.
        fence: Option<u64>,
    },
    /// Nobody knows whether it happened: no majority, a broken connection, a time limit. It gives
    /// no belief, and takes none.
    Failed {
        /// Who asked.
        client: String,
        /// For what.
        name: String,
        /// Which request.
        attempt: u64,
        /// What was tried.
        deed: Deed,
        /// In a few words.
        why: String,
    },
    /// A client believes that it holds a lease, or goes on believing. The first of a tenure is the
    /// grant, any further ones are renewals or were looked at again.
    Held(Belief),
    /// A client believes no longer, from `at` on at the latest.
    Ended {
        /// Who.
        client: String,
        /// What was held.
        name: String,
        /// The answer to which of this client's requests.
        attempt: u64,
        /// The tenure.
        fence: u64,
        /// Why.
        why: End,
    },
    /// The cell confirmed a release.
    ReleaseAcknowledged {
        /// To whom.
        client: String,
        /// What is free.
        name: String,
        /// The answer to which of this client's requests it was.
        attempt: u64,
        /// The tenure that is over.
        fence: u64,
    },
    /// The cell said that a tenure was over already, to whoever wanted to keep it or give it back.
    Over {
        /// To whom.
        client: String,
        /// What is not held.
        name: String,
        /// The answer to which of this client's requests it was.
        attempt: u64,
        /// The tenure.
        fence: u64,
        /// What was tried.
        deed: Deed,
        /// When that left.
        asked_at: Nanos,
    },
    /// The fenced store took or refused a write.
    Write {
        /// Who wrote.
        client: String,
        /// What the write is protected by.
        name: String,
        /// The writer's fence.
        fence: u64,
        /// Whether it was taken.
        accepted: bool,
        /// The highest fence that was taken for this name before.
        highest: u64,
    },
    /// Something was broken, or mended.
    Fault {
        /// Which fault: the same for its begin and its end, and for all steps of one that comes
        /// in steps.
        id: u64,
        /// The kind of fault, as reports count them.
        what: String,
        /// To whom: nodes, clients, links.
        whom: String,
        /// The nodes that it may keep from serving; all others must go on.
        #[serde(default)]
        nodes: Vec<u16>,
        /// Whether it begins or ends.
        phase: Phase,
    },
    /// The machine itself stood still until now.
    Stalled {
        /// Since when.
        from: Nanos,
    },
    /// The run is over, and clients are about to be ended: what comes later proves nothing.
    Closed,
    /// Everything is mended. From here on every name must be granted again within the bound.
    Healed {
        /// The bound, in nanoseconds.
        bound: Nanos,
    },
    /// A node changed its state.
    Node {
        /// Which.
        id: u16,
        /// How it stands now.
        state: NodeState,
    },
}

impl What {
    /// Who wrote it down, if that was a client.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        match self {
            Self::Asked(ask) | Self::Denied { ask, .. } => Some(&ask.client),
            Self::Held(belief) => Some(&belief.client),
            Self::Began { client, .. }
            | Self::Failed { client, .. }
            | Self::Ended { client, .. }
            | Self::Over { client, .. }
            | Self::ReleaseAcknowledged { client, .. } => Some(client),
            Self::Write { .. }
            | Self::Fault { .. }
            | Self::Stalled { .. }
            | Self::Closed
            | Self::Healed { .. }
            | Self::Node { .. } => None,
        }
    }
}

/// A request for a lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Who asks.
    pub client: String,
    /// How it speaks to the cell.
    pub kind: Kind,
    /// For what.
    pub name: String,
    /// Counts the requests of this client.
    pub attempt: u64,
    /// For how long it asks the lease, in milliseconds.
    pub ttl_ms: u64,
    /// How long it would wait, in milliseconds.
    pub wait_ms: u64,
}

/// That a client holds a lease, by its own rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Belief {
    /// Who holds.
    pub client: String,
    /// How it speaks to the cell.
    pub kind: Kind,
    /// What is held.
    pub name: String,
    /// The answer to which of this client's requests.
    pub attempt: u64,
    /// The tenure.
    pub fence: u64,
    /// When the client learned of the grant.
    pub from: Nanos,
    /// Until when it believes, if nothing more is heard.
    pub until: Nanos,
    /// How often the tenure was renewed so far.
    pub renewals: u64,
}

/// What a client tries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// To take a lease.
    Acquire,
    /// To keep it.
    Renew,
    /// To give it back.
    Release,
}

/// Why a belief ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The client gives it back, and is about to say so.
    Released,
    /// It was told that the lease is over.
    Lost,
    /// The time was up.
    Expired,
    /// The client is about to die without a word.
    Crashed,
}

/// Whether a fault begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From now on.
    Begin,
    /// Until now.
    End,
}

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It was started.
    Started,
    /// It was asked to stop, and did.
    Stopped,
    /// It was killed.
    Killed,
    /// It ended by itself, which nobody asked for.
    Died,
}

/// The log of one process, and of nobody else.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Where the next line goes.
    end: u64,
    /// The last line if it may be extended: where it begins, its length, whose belief it is.
    open: Option<(u64, usize, String, u64)>,
}

impl Log {
    /// A new file; one that exists is left alone, for it is somebody's log.
    ///
    /// # Errors
    /// When it exists, or cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).open(path)?;
        Ok(Self { file, end: 0, open: None })
    }

    /// Writes down that something happens now.
    ///
    /// # Errors
    /// When it cannot be written, and then the process must not go on: what it did would be
    /// hidden.
    pub fn write(&mut self, what: What) -> io::Result<()> {
        self.write_at(now(), what)
    }

    /// Writes down that something happened at another time than now.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn write_at(&mut self, at: Nanos, what: What) -> io::Result<()> {
        self.open = None;
        let line = line(&Event { at, what });
        self.append(&line)
    }

    /// Writes down that a belief was seen to hold at `at`. Where the line before says the same of
    /// an earlier instant it is overwritten, so that looking often costs no space.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn extend(&mut self, at: Nanos, belief: Belief) -> io::Result<()> {
        let (name, fence) = (belief.name.clone(), belief.fence);
        let mut line = line(&Event { at, what: What::Held(belief) });
        if let Some((begin, len, of, tenure)) = &self.open
            && (of, *tenure) == (&name, fence)
            && line.len() <= *len
        {
            // JSON takes blanks behind a value.
            line.splice(line.len() - 1..line.len() - 1, vec![b' '; len - line.len()]);
            return self.file.write_all_at(&line, *begin);
        }
        let begin = self.end;
        self.append(&line)?;
        self.open = Some((begin, line.len(), name, fence));
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all_at(line, self.end)?;
        self.end += line.len() as u64;
        Ok(())
    }
}

fn line(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).expect("events have only keys that are texts");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::fs;

    use paxoslease_rig::Folder;

    use super::*;

    fn belief(until: Nanos) -> Belief {
        let (client, name) = ("c1".to_owned(), "a".to_owned());
        Belief {
            client,
            kind: Kind::Lock,
            name,
            attempt: 1,
            fence: 1025,
            from: 5,
            until,
            renewals: 0,
        }
    }

    #[test]
    fn what_is_written_is_read_in_the_order_of_time_across_files() {
        let folder = Folder::new("merge").expect("a folder");
        let mut one = Log::create(&folder.join("one.jsonl")).expect("a log");
        let mut two = Log::create(&folder.join("two.jsonl")).expect("a log");
        one.write_at(3, What::Healed { bound: 7 }).expect("written");
        two.write_at(2, What::Held(belief(9))).expect("written");
        two.write_at(4, What::Node { id: 1, state: NodeState::Killed }).expect("written");
        let records = read(folder.path()).expect("read");
        let times: Vec<Nanos> = records.events.iter().map(|event| event.at).collect();
        assert_eq!((times, records.cut), (vec![2, 3, 4], 0));
        assert_eq!(records.events[0].what, What::Held(belief(9)));
        assert!(Log::create(&folder.join("one.jsonl")).is_err(), "a log is never overwritten");
    }

    #[test]
    fn a_belief_seen_again_takes_no_space_until_something_else_happened() {
        let folder = Folder::new("extend").expect("a folder");
        let path = folder.join("c.jsonl");
        let mut log = Log::create(&path).expect("a log");
        let lines = || fs::read_to_string(&path).expect("text").lines().count();
        for until in [1_000, 1_001, 999] {
            log.extend(until, belief(until)).expect("written");
        }
        assert_eq!(lines(), 1);
        log.write_at(1_002, What::Healed { bound: 1 }).expect("written");
        log.extend(1_003, belief(1_003)).expect("written");
        log.extend(1_004, belief(10_000)).expect("longer than before, so a line of its own");
        assert_eq!(lines(), 4);
        let events = read(folder.path()).expect("read").events;
        let until: Vec<Nanos> = events
            .iter()
            .filter_map(|event| match &event.what {
                What::Held(belief) => Some(belief.until),
                _ => None,
            })
            .collect();
        assert_eq!(until, [999, 1_003, 10_000]);
    }
}
