//! The bounds we search, and for every rule the bounds within which its absence does harm.

use paxoslease_core::{Rule, Rules};

use crate::{Bounds, Wish};

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

/// For each rule, the smallest bounds in which a core without it does harm.
#[must_use]
pub fn mutants() -> Vec<(Rule, Bounds)> {
    use Rule as R;
    let w = Wish::new;
    let renewal = Bounds { renewals: 1, renewal_ticks: vec![1], ..base() };
    let list = vec![
        (R::ProposeRefusesForeign, base()),
        (R::ProposeRaisesPromised, Bounds { releases: 1, ..base() }),
        (
            R::RenewKeepsLater,
            Bounds { wishes: vec![w(0, 2), w(1, 1)], ..renewal.clone() },
        ),
        (R::RenewRaisesPromised, Bounds { ..renewal.clone() }),
        (R::RenewOnlyLive, renewal.clone()),
        (R::HealOnlyAfterMajority, renewal.clone()),
        (R::HealObeysBallot, renewal.clone()),
        (R::HealCarriesRenewalBallot, renewal.clone()),
        (R::ReleaseMatchesTenure, Bounds { releases: 1, ..base() }),
        (R::ReclaimFoldsIntoFloor, Bounds { sweeps: 2, ..base() }),
        (R::FloorStartsAtCeiling, Bounds { crashes: 1, ..base() }),
        (R::CounterStartsAtCeiling, Bounds { crashes: 1, proposers_crash: true, ..base() }),
        (R::LateMajorityCountsForNothing, base()),
        (R::AcceptsAreDistinct, base()),
        (R::TimerIsArmedOnce, Bounds { direct: false, ..base() }),
        (R::VoidBeforeUndo, base()),
        (R::FailedRenewalIsNotUndone, renewal.clone()),
        (R::AbandonReleasesFreshOnly, Bounds { abandons: 1, ..renewal.clone() }),
        (R::RenewalHasFreshBallot, renewal.clone()),
        (R::ReleaseDropsBeliefFirst, Bounds { releases: 1, ..base() }),
        (R::ReleasedTenureIsNeverUsed, Bounds { releases: 1, ..renewal.clone() }),
        (R::OnlyOwnTenureIsRenewed, Bounds { adopters: true, ..renewal.clone() }),
        (
            R::RenewTtlIsBounded,
            Bounds { disk: false, crashes: 2, max_ticks: 1, renewal_ticks: vec![2], ..renewal.clone() },
        ),
        (R::QuarantineCoversLongestTtl, Bounds { crashes: 1, wishes: vec![w(0, 2), w(1, 1)], ..base() }),
        (R::LeaseCeilingCountsRenewals, Bounds { crashes: 1, renewal_ticks: vec![2], ..renewal.clone() }),
        (
            R::LeaseCeilingKeptInQuarantine,
            Bounds { crashes: 2, sweeps: 1, wishes: vec![w(0, 2), w(1, 1)], ..base() },
        ),
        (R::SnapshotIsUsedOnce, Bounds { crashes: 1, clean_restarts: 1, ..base() }),
        (R::NoSnapshotFromQuarantine, Bounds { crashes: 1, clean_restarts: 1, ..base() }),
        (R::QuorumIsMajority, base()),
    ];
    let mutant = |(rule, bounds): (Rule, Bounds)| {
        (rule, Bounds { title: "mutant", rules: Rules::without(rule), ..bounds })
    };
    list.into_iter().map(mutant).collect()
}
