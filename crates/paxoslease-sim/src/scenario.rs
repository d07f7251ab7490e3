//! Scripted schedules, by name. In each, the network, the nodes and the clients do what they may do
//! any day, in the most harmful order.
//!
//! A schedule holds, loses and repeats messages by sender, receiver and kind, crashes nodes, and
//! gives commands to clients. The same schedule runs with every [`Algorithm`].
//! `scenario/scripts.txt` contains the schedules and explains their words.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Ttl};

use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::named::named;
use crate::network::{Action, FilterId, Link, Pattern};
use crate::swarm::Report;
use crate::trace::{Keep, TrueTime};
use crate::world::{ClientId, Setup, World};

named! {
    /// A schedule; the simple ones come first.
    Scenario;
    Uncontended, "uncontended",
        "One client acquires, renews and releases; nothing goes wrong.";
    HolderDies, "holder-dies",
        "The holder and its node die; another client waits its turn.";
    SplitVote, "split-vote",
        "Three contenders at once, and each acceptor hears another one first.";
    LateProposeAfterRestart, "late-propose-after-restart",
        "A Propose from before a restart arrives after it and meets another's lease.";
    PromiseNotRaised, "promise-not-raised",
        "An acceptor takes a Propose whose Prepare it never saw; then an older one comes.";
    ShorterRenewal, "shorter-renewal",
        "A holder renews for less time than it has left.";
    DuplicateReplies, "duplicate-replies",
        "The network delivers one acceptor's replies twice.";
    LateThirdReply, "late-third-reply",
        "A third reply arrives long after the majority's.";
    StaleRelease, "stale-release",
        "An Accept arrives after the lease it belongs to was released.";
    SnapshotInQuarantine, "snapshot-in-quarantine",
        "A crashed node is stopped cleanly while it is quarantined, and started again.";
    FenceAfterRestart, "fence-after-restart",
        "Every node restarts; the next fence must be higher still.";
    LateMajority, "late-majority",
        "The majority's last Accept arrives after the lease is over.";
    RenewAfterLapse, "renew-after-lapse",
        "A client renews a lease that lapsed and that another has had since.";
}

impl Scenario {
    /// Runs the schedule and keeps the whole trace.
    #[must_use]
    pub fn play<A: Algorithm>(self, algorithm: A) -> Report {
        let mut scripted = ScriptedWorld::new(World::new(algorithm, self.setup()));
        self.lines().for_each(|line| scripted.play(line));
        Report { clients: CLIENTS, ..scripted.world.into_report() }
    }

    fn lines(self) -> impl Iterator<Item = &'static str> {
        let mut scripts = include_str!("scenario/scripts.txt").split("\n=== ");
        let script =
            scripts.find_map(|script| script.strip_prefix(self.name())?.strip_prefix('\n'));
        let lines = script.expect("every scenario has a script").lines();
        lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
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

/// A world with three scripted clients.
struct ScriptedWorld<A: Algorithm> {
    world: World<A>,
    clients: Vec<ClientId>,
    filters: BTreeMap<&'static str, FilterId>,
}

impl<A: Algorithm> ScriptedWorld<A> {
    fn new(mut world: World<A>) -> Self {
        // The first client of a world has number 0. It does nothing: people count from 1.
        let clients = (0..=CLIENTS).map(|_| world.add_client(Clock::perfect(), 0, None)).collect();
        Self { world, clients, filters: BTreeMap::new() }
    }

    fn play(&mut self, line: &'static str) {
        let words: Vec<&'static str> = line.split(' ').collect();
        let id = |word: &str| word.parse::<u16>().expect("a node");
        let span = |word: &str| ms(word.parse().expect("milliseconds"));
        match words[..] {
            ["at", time] => self.world.run_until(TrueTime(span(time).as_nanos() as u64)),
            ["client", number, verb, "at", node, ref rest @ ..] => {
                let (client, node) = (self.clients[usize::from(id(number))], id(node));
                match (verb, rest) {
                    ("acquires", ["for", ttl]) => {
                        self.world.acquire(client, node, span(ttl), Duration::ZERO);
                    }
                    ("acquires", ["for", ttl, "waiting", wait]) => {
                        self.world.acquire(client, node, span(ttl), span(wait));
                    }
                    ("renews", ["for", ttl]) => self.world.renew(client, node, span(ttl)),
                    ("releases", []) => self.world.release(client, node),
                    _ => panic!("unknown command {line}"),
                }
            }
            ["crash", node] => self.world.crash(id(node)),
            ["stop", node] => self.world.stop(id(node)),
            ["start", node] => self.world.start(id(node)),
            ["hold", label, ref which @ ..] => self.filter(label, which, Action::Hold),
            ["lose", label, ref which @ ..] => self.filter(label, which, Action::Drop),
            ["double", label, ref which @ ..] => self.filter(label, which, Action::Repeat(2)),
            ["lift", label] => self.world.lift(self.filters[label]),
            ["note", node, ..] => {
                let text = line.splitn(3, ' ').last().unwrap_or_default();
                self.world.note(id(node), text);
            }
            ["until", "granted", bound] => {
                self.world.run_while(span(bound), |world| world.counts().acquires == 0);
            }
            ["run", time] => self.world.run_for(span(time)),
            _ => panic!("unknown command {line}"),
        }
    }

    fn filter(&mut self, label: &'static str, which: &[&'static str], action: Action) {
        let mut pattern = Pattern::default();
        let mut words = which.iter();
        let id = |word: Option<&&str>| Some(word?.parse().expect("a node"));
        while let Some(word) = words.next() {
            match *word {
                "from" => pattern.from = id(words.next()),
                "to" => pattern.to = id(words.next()),
                kind => pattern.kind = Some(kind),
            }
        }
        self.filters.insert(label, self.world.filter(pattern, action));
    }
}
