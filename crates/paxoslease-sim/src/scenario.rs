//! Schedules written by hand, by name: each makes the network, the nodes and the clients do what
//! they may do any day, in the order that hurts most.
//!
//! A schedule holds back, loses and repeats messages by sender, addressee and kind, crashes nodes,
//! and tells clients what to ask when. It runs alike against every [`Algorithm`]; what comes of it
//! is the algorithm's doing. The schedules themselves are in the folder beside.

mod scripts;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Ttl};

use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::network::{Action, FilterId, Link, Pattern};
use crate::swarm::Report;
use crate::trace::{Keep, TrueTime};
use crate::world::{ClientId, Setup, World};

/// A schedule by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scenario {
    /// One client, nobody else.
    Uncontended,
    /// The holder dies.
    HolderDies,
    /// Three contenders, a vote each.
    SplitVote,
    /// A3, R1.
    LateProposeAfterRestart,
    /// A3.
    PromiseNotRaised,
    /// A4.
    ShorterRenewal,
    /// P3.
    DuplicateReplies,
    /// P3.
    LateThirdReply,
    /// P6.
    StaleRelease,
    /// R4.
    SnapshotInQuarantine,
    /// R1.
    FenceAfterRestart,
    /// P1.
    LateMajority,
    /// A4.
    RenewAfterLapse,
}

impl Scenario {
    /// Every one, the plain ones first.
    pub const ALL: [Self; 13] = [
        Self::Uncontended,
        Self::HolderDies,
        Self::SplitVote,
        Self::LateProposeAfterRestart,
        Self::PromiseNotRaised,
        Self::ShorterRenewal,
        Self::DuplicateReplies,
        Self::LateThirdReply,
        Self::StaleRelease,
        Self::SnapshotInQuarantine,
        Self::FenceAfterRestart,
        Self::LateMajority,
        Self::RenewAfterLapse,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::HolderDies => "holder-dies",
            Self::SplitVote => "split-vote",
            Self::LateProposeAfterRestart => "late-propose-after-restart",
            Self::PromiseNotRaised => "promise-not-raised",
            Self::ShorterRenewal => "shorter-renewal",
            Self::DuplicateReplies => "duplicate-replies",
            Self::LateThirdReply => "late-third-reply",
            Self::StaleRelease => "stale-release",
            Self::SnapshotInQuarantine => "snapshot-in-quarantine",
            Self::FenceAfterRestart => "fence-after-restart",
            Self::LateMajority => "late-majority",
            Self::RenewAfterLapse => "renew-after-lapse",
        }
    }

    /// What happens, in a sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Uncontended => "One client acquires, renews and releases; nothing goes wrong.",
            Self::HolderDies => "The holder and its node die; another client waits its turn.",
            Self::SplitVote => {
                "Three contenders at once, and each acceptor hears another one first."
            }
            Self::LateProposeAfterRestart => {
                "A Propose from before a restart arrives after it and meets another's lease."
            }
            Self::PromiseNotRaised => {
                "An acceptor takes a Propose whose Prepare it never saw; then an older one comes."
            }
            Self::ShorterRenewal => "A holder renews for less time than it has left.",
            Self::DuplicateReplies => "The network delivers one acceptor's replies twice.",
            Self::LateThirdReply => "A third reply arrives long after the majority's.",
            Self::StaleRelease => "An Accept arrives after the lease it belongs to was released.",
            Self::SnapshotInQuarantine => {
                "A crashed node is stopped cleanly while it is quarantined, and started again."
            }
            Self::FenceAfterRestart => "Every node restarts; the next fence must be higher still.",
            Self::LateMajority => "The majority's last Accept arrives after the lease is over.",
            Self::RenewAfterLapse => {
                "A client renews a lease that lapsed and that another has had since."
            }
        }
    }

    /// Plays it, keeping the whole trace.
    #[must_use]
    pub fn play<A: Algorithm>(self, algorithm: A) -> Report {
        let setup = self.setup();
        let nodes = setup.cell.members().len() as u16;
        let mut stage = Stage::new(World::new(algorithm, setup));
        match self {
            Self::Uncontended => scripts::uncontended(&mut stage),
            Self::HolderDies => scripts::holder_dies(&mut stage),
            Self::SplitVote => scripts::split_vote(&mut stage),
            Self::LateProposeAfterRestart => scripts::late_propose_after_restart(&mut stage),
            Self::PromiseNotRaised => scripts::promise_not_raised(&mut stage),
            Self::ShorterRenewal => scripts::shorter_renewal(&mut stage),
            Self::DuplicateReplies => scripts::duplicate_replies(&mut stage),
            Self::LateThirdReply => scripts::late_third_reply(&mut stage),
            Self::StaleRelease => scripts::stale_release(&mut stage),
            Self::SnapshotInQuarantine => scripts::snapshot_in_quarantine(&mut stage),
            Self::FenceAfterRestart => scripts::fence_after_restart(&mut stage),
            Self::LateMajority => scripts::late_majority(&mut stage),
            Self::RenewAfterLapse => scripts::renew_after_lapse(&mut stage),
        }
        let world = stage.world;
        Report {
            seed: SEED,
            nodes,
            proposers: 0,
            clients: CLIENTS,
            names: 1,
            counts: world.counts(),
            lasted: Duration::from_nanos(world.now().0),
            violations: world.violations().to_vec(),
            trace_hash: world.tracer().value(),
            trace: world.into_trace(),
        }
    }

    /// A quiet world in round numbers: what happens is the schedule's doing alone.
    fn setup(self) -> Setup {
        let nodes = if self == Self::DuplicateReplies { 5 } else { 3 };
        let members: Vec<NodeId> = (1..=nodes).filter_map(NodeId::new).collect();
        let max_lease = Ttl::from_millis(MAX_LEASE).expect("not zero");
        let cell = Cell::new(&members, max_lease, Drift::NONE).expect("a cell in bounds");
        let mut setup = Setup {
            names: vec!["x".to_owned()],
            link: Link::steady(ms(10)),
            client_link: Link::steady(Duration::ZERO),
            disk: Some((Duration::ZERO, Duration::ZERO)),
            seed: SEED,
            keep: Keep::All,
            ..Setup::quiet(cell)
        };
        if self == Self::SplitVote {
            // Nodes pause for about a round trip of a local network between attempts.
            setup.link = Link::steady(ms(1));
        }
        // Patient nodes: a round that waits for a message is not simply begun again.
        setup.tuning.attempt_timeout = ms(2000);
        setup.tuning.attempt_timeout_min = ms(2000);
        setup
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no scenario of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownScenario {
    /// The name asked for.
    pub asked: String,
    /// The name that looks most like it.
    pub nearest: &'static str,
}

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, nearest } = self;
        write!(f, "there is no scenario `{asked}`; did you mean `{nearest}`?")
    }
}

impl std::error::Error for UnknownScenario {}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(asked: &str) -> Result<Self, UnknownScenario> {
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == asked);
        found.ok_or_else(|| {
            let nearest = Self::ALL.into_iter().map(Self::name);
            let nearest = nearest.min_by_key(|name| edits(asked, name)).unwrap_or_default();
            UnknownScenario { asked: asked.to_owned(), nearest }
        })
    }
}

/// How many letters to add, drop or change to get from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

const SEED: u64 = 1;
/// Clients in a scenario, numbered from one.
const CLIENTS: u32 = 3;
/// M, in milliseconds.
const MAX_LEASE: u32 = 1000;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A world with three clients that do as they are told, in milliseconds of true time.
struct Stage<A: Algorithm> {
    world: World<A>,
    clients: Vec<ClientId>,
}

impl<A: Algorithm> Stage<A> {
    fn new(mut world: World<A>) -> Self {
        // The first client of a world has number 0. It stays away: people count from one.
        let clients = (0..=CLIENTS).map(|_| world.add_client(Clock::perfect(), 0, None)).collect();
        Self { world, clients }
    }

    /// Lets everything happen until then.
    fn at(&mut self, millis: u64) {
        self.world.run_until(TrueTime(millis * 1_000_000));
    }

    /// A client asks a node for the lease, and does not wait if it is held.
    fn acquire(&mut self, client: usize, node: u16, ttl: u64) {
        self.acquire_patiently(client, node, ttl, 0);
    }

    fn acquire_patiently(&mut self, client: usize, node: u16, ttl: u64, wait: u64) {
        self.world.acquire(self.clients[client], node, ms(ttl), ms(wait));
    }

    fn renew(&mut self, client: usize, node: u16, ttl: u64) {
        self.world.renew(self.clients[client], node, ms(ttl));
    }

    fn release(&mut self, client: usize, node: u16) {
        self.world.release(self.clients[client], node);
    }

    fn hold(&mut self, pattern: Pattern) -> FilterId {
        self.world.filter(pattern, Action::Hold)
    }

    fn lose(&mut self, pattern: Pattern) -> FilterId {
        self.world.filter(pattern, Action::Drop)
    }
}
