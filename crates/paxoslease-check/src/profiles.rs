//! The bounds that we search, and for every rule bounds in which the core without it does harm:
//! `bounds.txt` lists them.

use std::str::FromStr;

use paxoslease_core::{BALLOT_BLOCK, Rule, Rules};

use crate::{Bounds, Checks, Client, Crashing};

/// Bounds that together take a minute or two on two cores. Each is searched to the end.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    section("quick").collect()
}

/// Larger bounds, smallest first. Each takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Bounds> {
    section("deep").map(|bounds| Bounds { states_max: 40_000_000, ..bounds }).collect()
}

/// A core with one rule switched off, and the harm to expect.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The rule that is switched off.
    pub rule: Rule,
    /// The harm to find: two holders, or at least fences out of order.
    pub checks: Checks,
    /// The bounds in which the harm occurs.
    pub bounds: Bounds,
}

/// The rules whose harm needs so long a schedule that the search takes minutes.
/// `tests/comeback.txt` has scripts for them.
pub const SCRIPTED: [Rule; 6] = [
    Rule::RenewRaisesPromised,
    Rule::HealObeysBallot,
    Rule::HealReplacesOnlyLower,
    Rule::HealCarriesRenewalBallot,
    Rule::RecordlessNodeAsksFirst,
    Rule::RecordlessFloorIsLearnt,
];

/// The rules about clock drift, which this world lacks. The simulator has scripts for them.
pub const SIMULATED: [Rule; 2] = [Rule::BeliefKeepsDriftMargin, Rule::WaitedIsShrunkByDrift];

/// For every other rule, bounds in which a core without the rule does harm.
#[must_use]
pub fn mutants() -> Vec<Mutant> {
    let mutant = |(checks, bounds): (Checks, Bounds)| {
        let rule = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == bounds.title);
        let rule = rule.unwrap_or_else(|| panic!("{} is not a rule", bounds.title));
        Mutant { rule, checks, bounds: Bounds { rules: Rules::without(rule), ..bounds } }
    };
    let two_holders = section("two holders").map(|bounds| (Checks::TwoHolders, bounds));
    two_holders.chain(section("harm").map(|bounds| (Checks::Harm, bounds))).map(mutant).collect()
}

/// The bounds below a heading, each a title and the settings that differ from [`Bounds::new`].
fn section(heading: &str) -> impl Iterator<Item = Bounds> + use<> {
    let heading = format!("[{heading}]");
    let lines = include_str!("bounds.txt").lines().skip_while(move |line| *line != heading);
    let lines = lines.skip(1).take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (title, settings) = line.split_once(':').expect("a title");
        let mut bounds = Bounds::new(title);
        for setting in settings.split_whitespace() {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            set(&mut bounds, key, value);
        }
        bounds
    })
}

fn set(bounds: &mut Bounds, key: &str, value: &str) {
    match key {
        "acceptors" => bounds.acceptors = number(value),
        "proposers" => bounds.proposers = number(value),
        "clients" => bounds.clients = value.split(',').map(client).collect(),
        "renewals" => bounds.renewals = number(value),
        "renewal_ticks" => bounds.renewal_ticks = value.split(',').map(number).collect(),
        "any_proposer" => bounds.any_proposer = true,
        "releases" => bounds.releases = number(value),
        "abandons" => bounds.abandons = number(value),
        "crashes" => bounds.crashes = number(value),
        "clean_restarts" => bounds.clean_restarts = number(value),
        "proposers_crash" => bounds.crashing = Crashing::Proposers,
        "counters" => bounds.counters = value.split(',').map(counter).collect(),
        "sweeps" => bounds.sweeps = number(value),
        "ticks" => bounds.ticks = number(value),
        "max_ticks" => bounds.max_ticks = number(value),
        "prepared" => bounds.direct = false,
        "retries" => bounds.retries = true,
        "spare_ballots" => bounds.spare_ballots = number(value),
        "no_disk" => bounds.disk = false,
        "slow_disk" => bounds.slow_disk = true,
        "confirmations" => bounds.confirmations = true,
        "adopters" => bounds.adopters = true,
        _ => panic!("unknown setting {key}"),
    }
}

fn number<N: FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// A ballot counter, in blocks of ballots if it ends with `b`.
fn counter(text: &str) -> u64 {
    text.strip_suffix('b').map_or_else(|| number(text), |n| number::<u64>(n) * BALLOT_BLOCK)
}

/// `0:2` acquires through proposer 0, for 2 ticks. More words change what it may do.
fn client(text: &str) -> Client {
    let mut words = text.split(':');
    let mut next = || number(words.next().expect("a proposer and a ttl"));
    let mut client = Client::new(next(), next());
    for word in words {
        match word {
            "unrenewed" => client.renews = false,
            "unreleased" => client.releases = false,
            word => match word.split_at(4) {
                ("name", name) => client.name = number(name),
                ("from", tick) => client.not_before = number(tick),
                _ => panic!("unknown word {word}"),
            },
        }
    }
    client
}
