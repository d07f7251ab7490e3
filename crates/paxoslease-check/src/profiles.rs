//! The bounds we search, and for every rule the bounds within which its absence does harm.

use paxoslease_core::{BALLOT_BLOCK, Rule, Rules};

use crate::{Bounds, Crashing, Wish};

/// Bounds that together take a minute or two on two cores.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    let three = vec![Wish::new(0, 1), Wish::new(1, 1), Wish::new(0, 1)];
    let two_names = vec![Wish::new(0, 1).named(1), Wish::new(1, 1), Wish::new(0, 1)];
    let renewed = Bounds { renewals: 1, renewal_ticks: vec![1], ..Bounds::new("") };
    vec![
        Bounds { title: "direct rounds, three tenures", wishes: three.clone(), ..base() },
        Bounds { title: "prepared rounds", direct: false, ..base() },
        Bounds { title: "split votes tried again", retries: true, spare_ballots: 1, ..base() },
        Bounds { title: "releases", releases: 2, any_proposer: true, ..base() },
        Bounds { title: "abandoned rounds", abandons: 2, releases: 1, ..base() },
        Bounds { title: "a renewal", ..renewed.clone() },
        Bounds { title: "a crash", crashes: 1, ..base() },
        Bounds { title: "two crashes", crashes: 2, ticks: 2, ..base() },
        Bounds { title: "no disk", crashes: 1, disk: false, ..base() },
        Bounds { title: "snapshot and crash", crashes: 1, clean_restarts: 1, ticks: 2, ..base() },
        Bounds { title: "reclaiming", sweeps: 1, ticks: 2, wishes: three, ..base() },
        Bounds { title: "two names, one floor", sweeps: 1, ticks: 2, wishes: two_names, ..base() },
        Bounds { title: "members that propose", proposers: 0, crashes: 1, ..base() },
        Bounds { title: "one acceptor", acceptors: 1, crashes: 1, ..renewed.clone() },
        Bounds { title: "two acceptors", acceptors: 2, crashes: 1, ..base() },
        Bounds { title: "four acceptors", acceptors: 4, crashes: 1, ..base() },
    ]
}

fn base() -> Bounds {
    Bounds::new("")
}

/// For each rule the exhaustive search can judge, bounds in which a core without it does harm.
/// The two that are about clock drift are the simulator's.
#[must_use]
pub fn mutants() -> Vec<(Rule, Bounds)> {
    use Rule as R;
    let w = Wish::new;
    // The contender's ballots are above whatever the holder's renewals use.
    let ahead = vec![0, 10];
    // Above every floor that a restart brings.
    let far_ahead = vec![0, 4 * BALLOT_BLOCK];
    let both_ahead = vec![4 * BALLOT_BLOCK, 8 * BALLOT_BLOCK];
    let long_then_short = vec![w(0, 2), w(1, 1).not_renewed()];
    let slow_first = Bounds { wishes: vec![w(0, 2), w(1, 1)], ticks: 1, ..base() };
    let renewal = Bounds {
        renewals: 1,
        renewal_ticks: vec![1],
        wishes: long_then_short.clone(),
        counters: ahead.clone(),
        ticks: 2,
        ..base()
    };
    let crash = Bounds {
        crashes: 1,
        wishes: long_then_short,
        counters: far_ahead.clone(),
        ticks: 1,
        ..base()
    };
    // A tenure that is healed after another was granted and released, and renewed once more.
    let comeback = Bounds {
        renewals: 2,
        renewal_ticks: vec![2],
        releases: 1,
        wishes: vec![w(0, 1).not_released(), w(1, 1).not_renewed().not_before(2)],
        ticks: 2,
        ..base()
    };
    let list = vec![
        (R::ProposeRefusesForeign, base()),
        (R::ProposeRaisesPromised, slow_first.clone()),
        (R::RenewKeepsLater, renewal.clone()),
        (R::RenewRaisesPromised, comeback.clone()),
        (R::RenewOnlyLive, Bounds { wishes: vec![w(0, 1), w(1, 1)], ..renewal.clone() }),
        (R::HealOnlyAfterMajority, Bounds { renewals: 1, ..base() }),
        (R::HealObeysBallot, Bounds { counters: ahead, ..comeback.clone() }),
        (R::HealCarriesRenewalBallot, Bounds { counters: vec![0, 1], ..comeback }),
        (R::ReleaseMatchesTenure, Bounds { wishes: vec![w(0, 1), w(1, 1), w(0, 1)], ..base() }),
        (R::ReclaimFoldsIntoFloor, Bounds { sweeps: 2, ..slow_first.clone() }),
        (R::FloorStartsAtCeiling, Bounds { crashes: 1, ..slow_first }),
        (
            R::CounterStartsAtCeiling,
            Bounds {
                crashes: 1,
                crashing: Crashing::Proposers,
                wishes: vec![w(0, 1), w(0, 1), w(1, 1)],
                ..base()
            },
        ),
        (R::LateMajorityCountsForNothing, base()),
        (R::AcceptsAreDistinct, base()),
        (R::TimerIsArmedOnce, Bounds { direct: false, ticks: 1, ..base() }),
        (R::VoidBeforeUndo, base()),
        (R::FailedRenewalIsNotUndone, renewal.clone()),
        (R::AbandonReleasesFreshOnly, Bounds { abandons: 1, ..renewal.clone() }),
        (R::RenewalHasFreshBallot, renewal.clone()),
        (R::ReleaseDropsBeliefFirst, Bounds { releases: 1, ..base() }),
        (
            R::ReleasedTenureIsNeverUsed,
            Bounds { releases: 1, any_proposer: true, ticks: 1, ..renewal.clone() },
        ),
        (R::OnlyOwnTenureIsRenewed, Bounds { adopters: true, ..renewal.clone() }),
        (
            R::RenewTtlIsBounded,
            Bounds {
                disk: false,
                crashes: 1,
                max_ticks: 1,
                renewal_ticks: vec![2],
                wishes: vec![w(0, 1), w(1, 1).not_renewed()],
                counters: far_ahead.clone(),
                ..renewal.clone()
            },
        ),
        (R::QuarantineCoversLongestTtl, crash.clone()),
        (
            R::LeaseCeilingCountsRenewals,
            Bounds {
                crashes: 1,
                renewal_ticks: vec![2],
                wishes: vec![w(0, 1), w(1, 1).not_renewed()],
                counters: far_ahead,
                ..renewal
            },
        ),
        (R::LeaseCeilingKeptInQuarantine, Bounds { crashes: 2, sweeps: 1, ..crash.clone() }),
        (R::SnapshotIsUsedOnce, Bounds { clean_restarts: 1, counters: both_ahead, ..crash.clone() }),
        (R::NoSnapshotFromQuarantine, Bounds { clean_restarts: 1, ..crash }),
        (R::QuorumIsMajority, base()),
    ];
    let mutant = |(rule, bounds): (Rule, Bounds)| {
        (rule, Bounds { title: "mutant", rules: Rules::without(rule), ..bounds })
    };
    list.into_iter().map(mutant).collect()
}
