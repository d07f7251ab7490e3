//! The trace of a simulated world, in order of true time: the input of diagrams, of the lines
//! printed around a violation, and of the trace hash.
//!
//! It only records. Any algorithm can be traced.

use std::collections::VecDeque;
use std::fmt;

/// True time, in nanoseconds since the world began. No node ever sees it.
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

/// One line of a trace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// When it happened.
    pub at: TrueTime,
    /// What happened.
    pub event: TraceEvent,
}

/// The kinds of events. Nodes appear by id, clients by number, messages by a number that is unique
/// in the world. `until` is the end of a lease, a belief or a pause.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the fields have the names of what they are")]
pub enum TraceEvent {
    /// A node sent a message; `text` is a label for an arrow, for example `Propose 7.1`.
    Sent { message: u64, from: u16, to: u16, text: String },
    /// The message with this number arrived. A duplicate has its own number.
    Delivered(u64),
    /// The message with this number was lost.
    Lost(u64),
    /// A client sent a command to a node, for example `acquire jobs/1`.
    Asked { client: u32, node: u16, text: String },
    /// An acceptor raised its promise.
    Promised { node: u16, name: String, ballot: String },
    /// An acceptor stores a lease, in place of what it stored for the name.
    Stored { node: u16, name: String, fence: u64, until: TrueTime },
    /// An acceptor dropped a live lease, because of a release or a crash.
    Cleared { node: u16, name: String },
    /// A client believes that it holds a lease, which the node granted or renewed.
    Believes { client: u32, node: u16, name: String, fence: u64, until: TrueTime },
    /// A client ended its belief early.
    Yielded { client: u32, name: String },
    /// This node lost its memory.
    Crashed(u16),
    /// This node stopped cleanly.
    Stopped(u16),
    /// A node started, perhaps with a quarantine.
    Started { node: u16, quarantine_until: Option<TrueTime> },
    /// A node paused.
    Paused { node: u16, until: TrueTime },
    /// A check failed; the text names it and what was found.
    Violation(String),
    /// A note on the line of a node, for a diagram or a transcript.
    Note { node: u16, text: String },
}

/// How much of a trace is kept. The hash always covers everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Nothing: the fastest. The same seed gives the same trace again.
    #[default]
    Nothing,
    /// The last entries, at most this many.
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
    /// A tracer without entries.
    #[must_use]
    pub const fn new(keep: Keep) -> Self {
        Self { keep, entries: VecDeque::new(), hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Whether entries are kept, so that it is worth making texts.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keep != Keep::Nothing
    }

    /// Keeps an entry, if any are kept.
    pub fn record(&mut self, at: TrueTime, event: impl FnOnce() -> TraceEvent) {
        match self.keep {
            Keep::Nothing => return,
            Keep::Last(max) if self.entries.len() >= max => {
                self.entries.pop_front();
            }
            Keep::Last(_) | Keep::All => {}
        }
        self.entries.push_back(Entry { at, event: event() });
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

    /// The hash of all events so far: the same seed gives the same hash on every machine.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.hash
    }

    /// All entries kept, in order.
    #[must_use]
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries.into()
    }
}
