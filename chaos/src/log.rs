//! The events of a run: one file per process, one line of JSON per event, times in nanoseconds of
//! the host's `CLOCK_MONOTONIC`, which all processes share and which runs while one is stopped.
//!
//! A line is one `write`, so a killed process leaves at most its last line incomplete. Deliberately
//! lacks judgement, which is in [`crate::check`].
//!
//! *Why a crash hides nothing.* A client logs [`EventKind::Asked`] before it sends a request;
//! without an answer there is no belief. It logs [`EventKind::Held`] after the answer and before it
//! acts on it, so that its belief precedes all its actions. It logs [`EventKind::Ended`] before it
//! sends a release (P6). RESP and HTTP clients log the end of a belief in advance, as the clock
//! rule gives it (T2). The library does so up to where its thread may release early. Beyond that,
//! and for the command of `lock`, [`Log::extend`] logs the belief up to the last check.

mod reading;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use reading::{Records, read};

/// A reading of the host's `CLOCK_MONOTONIC`, in nanoseconds.
pub type Nanos = u64;

pub fn now() -> Nanos {
    let reading = clock_gettime(ClockId::Monotonic);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}

pub const EXTENSION: &str = "jsonl";

/// The interface that a client uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `paxoslease-client`, with guards that renew themselves.
    Library,
    /// RESP over one connection at a time.
    Resp,
    /// HTTP and JSON.
    Http,
    /// A command under `paxoslease lock`, which believes that it may run.
    Lock,
}

impl Kind {
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

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    pub at: Nanos,
    #[serde(flatten)]
    pub what: EventKind,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    Began {
        client: String,
        kind: Kind,
        /// Draws what it does.
        seed: u64,
        /// The only node that it uses, if there is one.
        #[serde(default)]
        through: Option<u16>,
    },
    /// Logged before the request is sent.
    Asked(AcquireRequest),
    /// Not granted, because another client holds the lease.
    Denied {
        #[serde(flatten)]
        ask: AcquireRequest,
        /// Before the request was sent.
        asked_at: Nanos,
        /// The tenure that the refusal names.
        fence: Option<u64>,
    },
    /// The outcome is unknown: no majority, a broken connection, a timeout. Beliefs do not change.
    Failed {
        #[serde(flatten)]
        ask: AcquireRequest,
        operation: Operation,
        why: String,
    },
    /// A client believes that it holds a lease. The first event of a tenure is the grant, the
    /// others are renewals or later checks.
    Held(Belief),
    /// The belief ended at `at` or before.
    Ended {
        #[serde(flatten)]
        tenure: TenureId,
        why: EndReason,
    },
    ReleaseAcknowledged(TenureId),
    /// The cell answered to a renewal or a release that the tenure was over.
    Over {
        #[serde(flatten)]
        tenure: TenureId,
        operation: Operation,
        asked_at: Nanos,
    },
    Write {
        client: String,
        name: String,
        fence: u64,
        accepted: bool,
        /// The highest accepted fence of this name before.
        highest: u64,
    },
    Fault {
        /// The same for the begin and the end of a fault, and for all its steps.
        id: u64,
        /// The kind of fault in reports.
        what: String,
        /// The nodes, clients or links.
        whom: String,
        /// The nodes that it may keep from serving. All others must serve.
        #[serde(default)]
        nodes: Vec<u16>,
        phase: Phase,
    },
    /// The machine stood still until now.
    Stalled {
        from: Nanos,
    },
    /// The run is over. Later events prove nothing.
    Closed,
    /// All faults have ended. Every name must be granted again within the bound.
    Healed {
        bound: Nanos,
    },
    Node {
        id: u16,
        state: NodeState,
    },
}

impl EventKind {
    /// The client that logged the event, if it was one.
    pub fn client(&self) -> Option<&str> {
        match self {
            Self::Asked(ask) | Self::Denied { ask, .. } | Self::Failed { ask, .. } => {
                Some(&ask.client)
            }
            Self::Held(belief) => Some(&belief.client),
            Self::Began { client, .. } => Some(client),
            Self::Ended { tenure, .. }
            | Self::Over { tenure, .. }
            | Self::ReleaseAcknowledged(tenure) => Some(&tenure.client),
            Self::Write { .. }
            | Self::Fault { .. }
            | Self::Stalled { .. }
            | Self::Closed
            | Self::Healed { .. }
            | Self::Node { .. } => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AcquireRequest {
    pub client: String,
    pub kind: Kind,
    pub name: String,
    pub attempt: u64,
    pub ttl_ms: u64,
    pub wait_ms: u64,
}

/// Identifies a tenure: only one process uses a client's id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TenureId {
    pub client: String,
    pub name: String,
    pub attempt: u64,
    pub fence: u64,
}

/// The belief of a client that it holds a lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Belief {
    pub client: String,
    pub kind: Kind,
    pub name: String,
    pub attempt: u64,
    pub fence: u64,
    pub from: Nanos,
    /// The end of the belief without further events.
    pub until: Nanos,
    pub renewals: u64,
}

impl Belief {
    pub fn tenure(&self) -> TenureId {
        let Self { client, name, attempt, fence, .. } = self.clone();
        TenureId { client, name, attempt, fence }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Acquire,
    Renew,
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The client is about to release it.
    Released,
    /// The cell answered that the lease is over.
    Lost,
    Expired,
    /// The client is about to kill itself.
    Crashed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Begin,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    Started,
    Stopped,
    Killed,
    /// It ended by itself.
    Died,
}

/// The log of one process.
#[derive(Debug)]
pub struct Log {
    file: File,
    end: u64,
    /// The last line if it may be overwritten: its begin, length, name and fence.
    open: Option<(u64, usize, String, u64)>,
}

impl Log {
    /// Fails if the file exists.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).open(path)?;
        Ok(Self { file, end: 0, open: None })
    }

    /// Logs an event now. If that fails, the process must not go on: its actions would be hidden.
    pub fn write(&mut self, what: EventKind) -> io::Result<()> {
        self.write_at(now(), what)
    }

    /// Logs an event at another time.
    pub fn write_at(&mut self, at: Nanos, what: EventKind) -> io::Result<()> {
        self.open = None;
        let line = line(&Event { at, what });
        self.append(&line)
    }

    /// Logs that a belief held at `at`. Overwrites the last line if that is about the same belief,
    /// so that frequent checks cost no space.
    pub fn extend(&mut self, at: Nanos, belief: Belief) -> io::Result<()> {
        let (name, fence) = (belief.name.clone(), belief.fence);
        let mut line = line(&Event { at, what: EventKind::Held(belief) });
        if let Some((begin, len, of, tenure)) = &self.open
            && (of, *tenure) == (&name, fence)
            && line.len() <= *len
        {
            // JSON allows blanks after a value.
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
        let (client, name, kind) = ("c1".to_owned(), "a".to_owned(), Kind::Lock);
        Belief { client, kind, name, attempt: 1, fence: 1025, from: 5, until, renewals: 0 }
    }

    #[test]
    fn events_are_read_by_time_across_files() {
        let folder = Folder::new("merge").expect("a folder");
        let mut one = Log::create(&folder.join("one.jsonl")).expect("a log");
        let mut two = Log::create(&folder.join("two.jsonl")).expect("a log");
        one.write_at(3, EventKind::Healed { bound: 7 }).expect("written");
        two.write_at(2, EventKind::Held(belief(9))).expect("written");
        two.write_at(4, EventKind::Node { id: 1, state: NodeState::Killed }).expect("written");
        let records = read(folder.path()).expect("read");
        let times: Vec<Nanos> = records.events.iter().map(|event| event.at).collect();
        assert_eq!((times, records.cut), (vec![2, 3, 4], 0));
        assert_eq!(records.events[0].what, EventKind::Held(belief(9)));
        assert!(Log::create(&folder.join("one.jsonl")).is_err(), "a log is never overwritten");
    }

    #[test]
    fn an_extended_belief_overwrites_its_last_line() {
        let folder = Folder::new("extend").expect("a folder");
        let path = folder.join("c.jsonl");
        let mut log = Log::create(&path).expect("a log");
        let lines = || fs::read_to_string(&path).expect("text").lines().count();
        for until in [1_000, 1_001, 999] {
            log.extend(until, belief(until)).expect("written");
        }
        assert_eq!(lines(), 1);
        log.write_at(1_002, EventKind::Healed { bound: 1 }).expect("written");
        log.extend(1_003, belief(1_003)).expect("written");
        log.extend(1_004, belief(10_000)).expect("longer than before, so a line of its own");
        assert_eq!(lines(), 4);
        let events = read(folder.path()).expect("read").events;
        let until: Vec<Nanos> = events
            .iter()
            .filter_map(|event| match &event.what {
                EventKind::Held(belief) => Some(belief.until),
                _ => None,
            })
            .collect();
        assert_eq!(until, [999, 1_003, 10_000]);
    }
}
