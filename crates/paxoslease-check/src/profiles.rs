//! The bounds that we search, and for every rule bounds in which the core without it does harm:
//! `bounds.toml` lists them.

use paxoslease_core::{Rule, Rules};
use serde::Deserialize;

use crate::{Bounds, Checks};

/// Bounds that together take a minute or two on two cores. Each is searched to the end.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    profiles().quick
}

/// Larger bounds, smallest first. Each takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Bounds> {
    let deep = profiles().deep.into_iter();
    deep.map(|bounds| Bounds { states_max: 40_000_000, ..bounds }).collect()
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

/// The rules with a test of their own, in `tests/newcomer.rs` or among those of the core.
pub const TESTED: [Rule; 2] = [Rule::NewcomerForgetsRecords, Rule::EndNeedsMajority];

/// The rules about clock drift, which this world lacks. The simulator has scripts for them.
pub const SIMULATED: [Rule; 2] = [Rule::BeliefKeepsDriftMargin, Rule::WaitedIsShrunkByDrift];

/// The rules about durable leases whose harm these bounds do not reach.
pub const DURABLE_OPEN: [Rule; 7] = [
    Rule::ForgetsOneBallot,
    Rule::ForgetAtAll,
    Rule::EndOfThisBallot,
    Rule::UnchosenIsDropped,
    Rule::ReleaseComparesFence,
    Rule::FreeNamesRelease,
    Rule::FreeRegistersMove,
];

/// For every other rule, bounds in which a core without the rule does harm.
#[must_use]
pub fn mutants() -> Vec<Mutant> {
    let mutant = |(checks, bounds): (Checks, Bounds)| {
        let rule = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == bounds.title);
        let rule = rule.unwrap_or_else(|| panic!("{} is not a rule", bounds.title));
        Mutant { rule, checks, bounds: Bounds { rules: Rules::without(rule), ..bounds } }
    };
    let Profiles { two_holders, harm, lost, .. } = profiles();
    let judged = |checks: Checks, all: Vec<Bounds>| all.into_iter().map(move |it| (checks, it));
    let two_holders = judged(Checks::TwoHolders, two_holders);
    let harm = judged(Checks::Harm, harm);
    two_holders.chain(harm).chain(judged(Checks::Lost, lost)).map(mutant).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Profiles {
    quick: Vec<Bounds>,
    deep: Vec<Bounds>,
    two_holders: Vec<Bounds>,
    harm: Vec<Bounds>,
    lost: Vec<Bounds>,
}

fn profiles() -> Profiles {
    let read = |text| toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut profiles: Profiles = read(include_str!("bounds.toml"));
    for text in [include_str!("changes.toml"), include_str!("durable.toml")] {
        let others: Profiles = read(text);
        profiles.quick.extend(others.quick);
        profiles.deep.extend(others.deep);
        profiles.two_holders.extend(others.two_holders);
        profiles.harm.extend(others.harm);
        profiles.lost.extend(others.lost);
    }
    profiles
}
