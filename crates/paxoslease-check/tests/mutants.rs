//! A core with one safety rule switched off does harm, and the search finds it: a check that
//! cannot fail is no check.

use std::collections::BTreeSet;

use paxoslease_check::{Bounds, Harm, Look, profiles, search};
use paxoslease_core::{Rule, Rules};

#[test]
fn every_rule_switched_off_does_the_harm_it_prevents() {
    for mutant in profiles::mutants() {
        let report = search(&mutant.bounds, mutant.look);
        let (harm, _) = report.harm.unwrap_or_else(|| panic!("{:?} not caught", mutant.rule));
        match mutant.look {
            Look::ForTwoHolders => assert!(matches!(harm, Harm::TwoHolders(_)), "{harm}"),
            Look::ForHarm if mutant.rule == Rule::ReleaseNeedsMajority => {
                assert!(matches!(harm, Harm::ReleaseUnheard(_)), "{harm}");
            }
            Look::ForHarm => assert!(matches!(harm, Harm::FencesOutOfOrder(_)), "{harm}"),
            Look::Strictly => unreachable!("mutants are judged by their harm"),
        }
    }
}

/// The same bounds with the rule in force are searched without harm: it is the rule that helps.
/// (Those that are too large to be searched to the end in a test are left out.)
#[test]
fn the_same_bounds_are_safe_with_the_rule_in_force() {
    let mut searched = 0;
    for mutant in profiles::mutants() {
        let bounds = Bounds { rules: Rules::ALL, states_max: 100_000, ..mutant.bounds };
        let report = search(&bounds, mutant.look);
        assert!(report.harm.is_none(), "{:?}: {:?}", mutant.rule, report.harm);
        searched += usize::from(report.is_complete());
    }
    assert!(searched >= 8, "only {searched} searched to the end");
}

#[test]
fn every_rule_has_its_mutant() {
    let mutants = profiles::mutants().into_iter().map(|mutant| mutant.rule);
    let caught: Vec<Rule> = mutants.chain(profiles::SCRIPTED).chain(profiles::SIMULATED).collect();
    let distinct: BTreeSet<Rule> = caught.iter().copied().collect();
    assert_eq!(distinct.len(), caught.len(), "each in one place");
    assert_eq!(distinct, BTreeSet::from(Rule::ALL));
}
