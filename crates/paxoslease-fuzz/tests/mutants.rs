//! Tests of the checks: random inputs find the harm of a cell without one of its rules.

use paxoslease_core::{Rng, Rule, Rules};
use paxoslease_fuzz::{FalseMembers, cell_with_rules, members_with_rules};

/// The first violation that random inputs cause.
fn harm(rules: Rules, inputs: u64) -> Option<String> {
    (0..inputs).find_map(|seed| {
        let mut rng = Rng::seeded(seed);
        let input: Vec<u8> = (0..1024).map(|_| rng.bits() as u8).collect();
        cell_with_rules(rules, &input).map(|violation| violation.to_string())
    })
}

#[test]
fn a_cell_without_a_rule_has_a_violation() {
    for rule in [
        Rule::ProposeRefusesForeign,
        Rule::ReleaseMatchesTenure,
        Rule::QuorumIsMajority,
        Rule::QuarantineCoversLongestTtl,
        Rule::ReleaseDropsBeliefFirst,
    ] {
        assert!(harm(Rules::without(rule), 20_000).is_some(), "nothing found without {rule:?}");
    }
}

#[test]
fn a_cell_with_all_rules_has_no_violation() {
    assert_eq!(harm(Rules::ALL, 2_000), None);
}

/// The first false members that random inputs make a node believe.
fn false_members(rules: Rules, inputs: u64) -> Option<FalseMembers> {
    (0..inputs).find_map(|seed| {
        let mut rng = Rng::seeded(seed);
        let input: Vec<u8> = (0..256).map(|_| rng.bits() as u8).collect();
        members_with_rules(rules, &input)
    })
}

#[test]
fn a_node_without_a_rule_believes_false_members() {
    for rule in [Rule::ConfigFromMembers, Rule::ConfigFollows] {
        assert!(false_members(Rules::without(rule), 2_000).is_some(), "not without {rule:?}");
    }
    assert_eq!(false_members(Rules::ALL, 20_000), None);
}
