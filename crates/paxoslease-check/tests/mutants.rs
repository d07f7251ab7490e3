//! The search finds the harm of a core with one safety rule switched off: a check that cannot fail
//! is worthless.

use std::collections::BTreeSet;

use paxoslease_check::{Bounds, Checks, Harm, profiles, search};
use paxoslease_core::{Rule, Rules};

#[test]
fn every_rule_switched_off_does_the_harm_it_prevents() {
    for mutant in profiles::mutants() {
        let report = search(&mutant.bounds, mutant.checks);
        let (harm, _) = report.harm.unwrap_or_else(|| panic!("{:?} not caught", mutant.rule));
        match mutant.checks {
            Checks::TwoHolders => assert!(matches!(harm, Harm::TwoHolders(_)), "{harm}"),
            Checks::Harm if mutant.rule == Rule::ReleaseNeedsMajority => {
                assert!(matches!(harm, Harm::ReleaseUnconfirmed(_)), "{harm}");
            }
            Checks::Harm if mutant.rule == Rule::EndedTenureIsNotStored => {
                assert!(matches!(harm, Harm::ReleasedReturns(_)), "{harm}");
            }
            Checks::Harm
                if [Rule::FirstReleaseIsKept, Rule::UnknownEndIsTold].contains(&mutant.rule) =>
            {
                assert!(matches!(harm, Harm::EndedWrongly(_)), "{harm}");
            }
            Checks::Lost => assert!(matches!(harm, Harm::LeaseLost(_)), "{harm}"),
            Checks::Harm if mutant.bounds.has_registers() => {}
            Checks::Harm => assert!(matches!(harm, Harm::FencesOutOfOrder(_)), "{harm}"),
            Checks::All => unreachable!("mutants are judged by their harm"),
        }
    }
}

/// With the rule in force, the same bounds are searched without harm: so the rule makes the
/// difference. Bounds that are too large for a test are left out.
#[test]
fn the_same_bounds_are_safe_with_the_rule_in_force() {
    let mut searched = 0;
    for mutant in profiles::mutants() {
        let bounds = Bounds { rules: Rules::ALL, states_max: 100_000, ..mutant.bounds };
        let report = search(&bounds, mutant.checks);
        assert!(report.harm.is_none(), "{:?}: {:?}", mutant.rule, report.harm);
        searched += usize::from(report.is_complete());
    }
    assert!(searched >= 8, "only {searched} searched to the end");
}

/// `decisions.rs` has the mutants of the rules about decisions.
#[test]
fn every_rule_has_its_mutant() {
    // `tests/decisions.rs` has the rules of decisions.
    let mutants = profiles::mutants().into_iter().map(|mutant| mutant.rule);
    let mutants = mutants.filter(|rule| !Rule::OF_DECISIONS.contains(rule));
    let others = profiles::SCRIPTED.into_iter().chain(profiles::SIMULATED).chain(profiles::TESTED);
    let others = others.chain(profiles::DURABLE_OPEN);
    let caught: Vec<Rule> = mutants.chain(others).chain(Rule::OF_DECISIONS).collect();
    let distinct: BTreeSet<Rule> = caught.iter().copied().collect();
    assert_eq!(distinct.len(), caught.len(), "each in one place");
    assert_eq!(distinct, BTreeSet::from(Rule::ALL));
}
