//! Scripted schedules, by name. In each, the network, the nodes and the clients do what they may do
//! any day, in the most harmful order.
//!
//! A schedule holds, loses and repeats messages by sender, receiver and kind, crashes nodes, and
//! gives commands to clients. The same schedule runs with every [`Algorithm`]. The module `scripts`
//! contains the schedules.

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

/// Declares the scenarios: the variant, the script, the name on the command line, and a sentence
/// about what happens.
macro_rules! scenarios {
    ($($variant:ident, $script:ident, $name:literal, $description:literal;)*) => {
        /// A schedule.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Scenario {
            $(#[doc = $description] $variant,)*
        }

        impl Scenario {
            /// All scenarios, the simple ones first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// A sentence about what happens.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $description,)*
                }
            }

            fn script<A: Algorithm>(self, world: &mut ScriptedWorld<A>) {
                match self {
                    $(Self::$variant => scripts::$script(world),)*
                }
            }
        }
    };
}

scenarios! {
    Uncontended, uncontended, "uncontended",
        "One client acquires, renews and releases; nothing goes wrong.";
    HolderDies, holder_dies, "holder-dies",
        "The holder and its node die; another client waits its turn.";
    SplitVote, split_vote, "split-vote",
        "Three contenders at once, and each acceptor hears another one first.";
    LateProposeAfterRestart, late_propose_after_restart, "late-propose-after-restart",
        "A Propose from before a restart arrives after it and meets another's lease.";
    PromiseNotRaised, promise_not_raised, "promise-not-raised",
        "An acceptor takes a Propose whose Prepare it never saw; then an older one comes.";
    ShorterRenewal, shorter_renewal, "shorter-renewal",
        "A holder renews for less time than it has left.";
    DuplicateReplies, duplicate_replies, "duplicate-replies",
        "The network delivers one acceptor's replies twice.";
    LateThirdReply, late_third_reply, "late-third-reply",
        "A third reply arrives long after the majority's.";
    StaleRelease, stale_release, "stale-release",
        "An Accept arrives after the lease it belongs to was released.";
    SnapshotInQuarantine, snapshot_in_quarantine, "snapshot-in-quarantine",
        "A crashed node is stopped cleanly while it is quarantined, and started again.";
    FenceAfterRestart, fence_after_restart, "fence-after-restart",
        "Every node restarts; the next fence must be higher still.";
    LateMajority, late_majority, "late-majority",
        "The majority's last Accept arrives after the lease is over.";
    RenewAfterLapse, renew_after_lapse, "renew-after-lapse",
        "A client renews a lease that lapsed and that another has had since.";
}

impl Scenario {
    /// Runs the schedule and keeps the whole trace.
    #[must_use]
    pub fn play<A: Algorithm>(self, algorithm: A) -> Report {
        let mut scripted = ScriptedWorld::new(World::new(algorithm, self.setup()));
        self.script(&mut scripted);
        Report { clients: CLIENTS, ..scripted.world.into_report() }
    }

    /// A quiet world with round numbers: everything that happens comes from the schedule.
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
            // Between attempts, nodes pause for about a round trip of a local network.
            setup.link = Link::steady(ms(1));
        }
        // Long timeouts: a round that waits for a message is not started again.
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

/// No scenario has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownScenario {
    /// The unknown name.
    pub asked: String,
    /// The most similar name.
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
            let nearest = nearest
                .min_by_key(|name| strsim::damerau_levenshtein(asked, name))
                .unwrap_or_default();
            UnknownScenario { asked: asked.to_owned(), nearest }
        })
    }
}

const SEED: u64 = 1;
/// The number of clients in a scenario; they are numbered from 1.
const CLIENTS: u32 = 3;
/// `max_lease`, in milliseconds.
const MAX_LEASE: u32 = 1000;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A world with three scripted clients; times are milliseconds of true time.
struct ScriptedWorld<A: Algorithm> {
    world: World<A>,
    clients: Vec<ClientId>,
}

impl<A: Algorithm> ScriptedWorld<A> {
    fn new(mut world: World<A>) -> Self {
        // The first client of a world has number 0. It does nothing: people count from 1.
        let clients = (0..=CLIENTS).map(|_| world.add_client(Clock::perfect(), 0, None)).collect();
        Self { world, clients }
    }

    /// Runs the world until this time.
    fn at(&mut self, millis: u64) -> &mut Self {
        self.world.run_until(TrueTime(millis * 1_000_000));
        self
    }

    /// A client acquires the lease through a node, without waiting if it is held.
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

    fn crash(&mut self, node: u16) {
        self.world.crash(node);
    }

    fn stop(&mut self, node: u16) {
        self.world.stop(node);
    }

    fn start(&mut self, node: u16) {
        self.world.start(node);
    }

    fn note(&mut self, node: u16, text: &str) -> &mut Self {
        self.world.note(node, text);
        self
    }

    fn hold(&mut self, pattern: Pattern) -> FilterId {
        self.world.filter(pattern, Action::Hold)
    }

    fn lose(&mut self, pattern: Pattern) -> FilterId {
        self.world.filter(pattern, Action::Drop)
    }

    fn lift(&mut self, filter: FilterId) -> &mut Self {
        self.world.lift(filter);
        self
    }
}
