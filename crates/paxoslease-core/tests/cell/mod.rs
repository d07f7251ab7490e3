//! A cell of real shards joined by a list of messages that the test delivers as it likes.
//!
//! Time is one number for all, moved by the test. Nothing is delivered, lost or repeated unless
//! the test says so.
#![expect(dead_code, reason = "each test file uses the part it needs")]

use core::time::Duration;

use paxoslease_core::*;

pub(crate) const NAME: &str = "jobs/nightly";
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("a node id")
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("a name")
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) transmit: Transmit,
}

impl Letter {
    pub(crate) fn kind(&self) -> &'static str {
        kind(&self.transmit.message())
    }
}

pub(crate) fn kind(message: &Message<'_>) -> &'static str {
    match message {
        Message::Request(request) => match request {
            Request::Prepare { .. } => "Prepare",
            Request::Propose { .. } => "Propose",
            Request::Renew { .. } => "Renew",
            Request::Heal { .. } => "Heal",
            Request::Release { .. } => "Release",
            Request::Inspect { .. } => "Inspect",
        },
        Message::Reply(reply) => match reply {
            Reply::Promise { .. } => "Promise",
            Reply::Accept { .. } => "Accept",
            Reply::Reject { .. } => "Reject",
            Reply::NotHeld { .. } => "NotHeld",
            Reply::Released { .. } => "Released",
            Reply::Inspected { .. } => "Inspected",
        },
        Message::Hint(hint) => match hint {
            Hint::Held { .. } => "Held",
            Hint::Freed { .. } => "Freed",
        },
    }
}

pub(crate) struct TestCell {
    pub(crate) now: Instant,
    pub(crate) shards: Vec<Shard>,
    pub(crate) letters: Vec<Letter>,
    pub(crate) events: Vec<(NodeId, Event)>,
    pub(crate) sent: usize,
}

impl TestCell {
    /// Members 1 to `members`, and proposers that are no acceptors after them.
    pub(crate) fn new(members: u16, proposers: u16) -> Self {
        Self::with(members, proposers, |_| {})
    }

    pub(crate) fn with(members: u16, proposers: u16, adjust: impl Fn(&mut Config)) -> Self {
        let cell = cell(members);
        let now = Instant::ZERO.after(Duration::from_secs(1000));
        let shards = (1..=members + proposers)
            .map(|id| {
                let mut config = Config::new(node(id), cell, u64::from(id));
                adjust(&mut config);
                Shard::start(config, now, Start::NewCell { counter: 0, disk: false })
            })
            .collect();
        Self { now, shards, letters: Vec::new(), events: Vec::new(), sent: 0 }
    }

    pub(crate) fn shard(&mut self, id: u16) -> &mut Shard {
        self.shards.iter_mut().find(|shard| shard.config().node == node(id)).expect("a shard")
    }

    pub(crate) fn acquire(&mut self, id: u16, token: u64, wait: Duration) {
        let now = self.now;
        let acquire = Acquire {
            token: Token(token),
            name: name(NAME),
            holder: Holder::new("me").expect("short"),
            ttl: TTL,
            wait,
        };
        self.shard(id).acquire(now, acquire).expect("in bounds");
        self.collect();
    }

    pub(crate) fn renew(&mut self, id: u16, token: u64, tenure: Tenure, ttl: Duration) {
        let now = self.now;
        let texts = (name(NAME), Holder::NONE);
        self.shard(id).renew(now, Token(token), texts, tenure, ttl).expect("in bounds");
        self.collect();
    }

    pub(crate) fn release(&mut self, id: u16, token: u64, tenure: Tenure) {
        let now = self.now;
        self.shard(id).release(now, Token(token), name(NAME), tenure, TTL).expect("in bounds");
        self.collect();
    }

    /// Takes what the shards sent and what happened.
    pub(crate) fn collect(&mut self) {
        for shard in &mut self.shards {
            let from = shard.config().node;
            let cell = shard.config().cell;
            while let Some(transmit) = shard.poll_transmit() {
                let to: Vec<NodeId> = match transmit.to {
                    To::Members(set) => cell.nodes(set).collect(),
                    To::Node(node) => vec![node],
                };
                for to in to {
                    self.sent += 1;
                    self.letters.push(Letter { from, to, transmit: transmit.clone() });
                }
            }
            while let Some(event) = shard.poll_event() {
                self.events.push((from, event));
            }
        }
    }

    /// Delivers one letter, however often, however late.
    pub(crate) fn deliver(&mut self, letter: &Letter) -> Result<(), Refusal> {
        let now = self.now;
        let Letter { from, to, transmit } = letter;
        let outcome = self.shard(to.get()).handle_message(now, *from, transmit.message());
        self.collect();
        outcome
    }

    /// Takes the waiting letters that match.
    pub(crate) fn take(&mut self, matching: impl Fn(&Letter) -> bool) -> Vec<Letter> {
        let (taken, left) = self.letters.drain(..).partition(|letter| matching(letter));
        self.letters = left;
        taken
    }

    /// Delivers everything, and what that brings about, in order.
    pub(crate) fn settle(&mut self) {
        while !self.letters.is_empty() {
            let letter = self.letters.remove(0);
            // A refusal is an answer too; tests that care deliver by hand.
            let _ = self.deliver(&letter);
        }
    }

    /// Moves time on and wakes everybody.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        let now = self.now;
        for shard in &mut self.shards {
            shard.handle_timeout(now);
        }
        self.collect();
    }

    /// The tenure granted to a request, if it was.
    pub(crate) fn granted(&self, token: u64) -> Option<Tenure> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Granted { token: Token(t), tenure, .. } if *t == token => Some(*tenure),
            _ => None,
        })
    }

    /// The events about a request, by name.
    pub(crate) fn answers(&self, token: u64) -> Vec<&Event> {
        let token = Token(token);
        self.events
            .iter()
            .map(|(_, event)| event)
            .filter(|event| match event {
                Event::Granted { token: t, .. }
                | Event::Denied { token: t, .. }
                | Event::NoQuorum { token: t }
                | Event::Renewed { token: t, .. }
                | Event::NotHeld { token: t, .. }
                | Event::Released { token: t, .. }
                | Event::Inspected { token: t, .. } => *t == token,
                Event::Persist(_) | Event::HeldHint(_) | Event::FreedHint(_) => false,
            })
            .collect()
    }
}

pub(crate) fn cell(members: u16) -> Cell {
    let members: Vec<NodeId> = (1..=members).map(node).collect();
    Cell::new(&members, Ttl::from_millis(60_000).expect("not zero"), Drift::NONE).expect("valid")
}
