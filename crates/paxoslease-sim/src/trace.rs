//! What happened in a simulated world, in order of true time: the raw material of diagrams, of
//! the lines printed around a broken invariant, and of the trace hash.
//!
//! It records; it decides nothing. Any algorithm that runs in the world can be traced.

use std::collections::VecDeque;
use std::fmt;

/// A point in true time, in nanoseconds since the world began. No node ever sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TrueTime(pub u64);

impl fmt::Debug for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}ms", self.0 as f64 / 1e6)
    }
}

impl fmt::Display for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// When.
    pub at: TrueTime,
    /// What.
    pub what: What,
}

/// The kinds of things that happen. Nodes are given by id, clients by number, messages by a
/// number that is unique in the world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// A node sent a message to another; `text` is short enough to stand beside an arrow.
    Sent {
        /// Its number.
        message: u64,
        /// Sender.
        from: u16,
        /// Addressee.
        to: u16,
        /// For example `Propose 7.1`.
        text: String,
    },
    /// A message arrived (a duplicate has its own number).
    Delivered {
        /// Its number.
        message: u64,
    },
    /// A message was lost.
    Lost {
        /// Its number.
        message: u64,
    },
    /// A client asked a node for something.
    Asked {
        /// Who.
        client: u32,
        /// Whom.
        node: u16,
        /// For example `acquire jobs/1`.
        text: String,
    },
    /// An acceptor raised what it promised.
    Promised {
        /// The acceptor.
        node: u16,
        /// The resource.
        name: String,
        /// The ballot, as text.
        ballot: String,
    },
    /// An acceptor stores a lease until then (replaces what it stored for the name).
    Stored {
        /// The acceptor.
        node: u16,
        /// The resource.
        name: String,
        /// The tenure's fence.
        fence: u64,
        /// When it expires, in true time.
        until: TrueTime,
    },
    /// An acceptor's lease of this name is gone (released or lost, not expired).
    Cleared {
        /// The acceptor.
        node: u16,
        /// The resource.
        name: String,
    },
    /// A client believes it holds a lease until then, unless it says otherwise.
    Believes {
        /// The client.
        client: u32,
        /// The node it was granted or renewed through.
        node: u16,
        /// The resource.
        name: String,
        /// The tenure's fence.
        fence: u64,
        /// When the belief ends, in true time.
        until: TrueTime,
    },
    /// A client gave its belief up before its end.
    Yielded {
        /// The client.
        client: u32,
        /// The resource.
        name: String,
    },
    /// A node lost its memory.
    Crashed {
        /// The node.
        node: u16,
    },
    /// A node stopped cleanly.
    Stopped {
        /// The node.
        node: u16,
    },
    /// A node started; with a quarantine its acceptor is silent until then.
    Started {
        /// The node.
        node: u16,
        /// End of the quarantine, in true time.
        quarantine_until: Option<TrueTime>,
    },
    /// A node or client stood still until then.
    Paused {
        /// The node.
        node: u16,
        /// When it went on.
        until: TrueTime,
    },
    /// An invariant broke.
    Violation {
        /// Which, and how.
        text: String,
    },
    /// Something worth saying in a diagram or a transcript.
    Note {
        /// At which node's line.
        node: u16,
        /// What.
        text: String,
    },
}

/// How much of a trace is kept. The hash covers everything either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Nothing: the fastest. The same seed again gives the same trace when it is wanted.
    #[default]
    Nothing,
    /// The last so many entries.
    Last(usize),
    /// Everything.
    All,
}

/// Collects a trace and hashes it.
#[derive(Clone, Debug)]
pub struct Tracer {
    keep: Keep,
    entries: VecDeque<Entry>,
    hash: u64,
}

impl Tracer {
    pub(crate) const fn new(keep: Keep) -> Self {
        Self { keep, entries: VecDeque::new(), hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Whether entries are kept, so that texts are worth making.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keep != Keep::Nothing
    }

    /// Keeps an entry, if any are kept.
    pub(crate) fn record(&mut self, at: TrueTime, what: impl FnOnce() -> What) {
        match self.keep {
            Keep::Nothing => return,
            Keep::Last(max) if self.entries.len() >= max => {
                self.entries.pop_front();
            }
            Keep::Last(_) | Keep::All => {}
        }
        self.entries.push_back(Entry { at, what: what() });
    }

    /// Hashes an event: FNV-1a over words instead of bytes, with a shift to use the high bits.
    pub(crate) fn hash(&mut self, words: &[u64]) {
        for word in words {
            let mixed = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    /// Hashes a message.
    pub(crate) fn hash_bytes(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.hash(&[u64::from_le_bytes(chunk.try_into().expect("eight bytes"))]);
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.hash(&[u64::from_le_bytes(last), bytes.len() as u64]);
    }

    /// The hash of everything that happened so far: same seed, same hash, on every machine.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.hash
    }

    /// What was kept, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries.into()
    }
}
