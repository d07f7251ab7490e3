//! The bounds we search, and for every rule the bounds within which its absence does harm.

use paxoslease_core::{BALLOT_BLOCK, Rule, Rules};

use crate::{Bounds, Crashing, Look, Wish};

/// Bounds that together take a minute or two on two cores, each searched to the end.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    let w = Wish::new;
    let mixed = vec![w(0, 2), w(1, 1)];
    let three = vec![w(0, 1), w(1, 1), w(0, 1)];
    let far = vec![0, 4 * BALLOT_BLOCK];
    let renewal = Bounds { renewals: 1, ..base() };
    let crash = Bounds { crashes: 1, counters: far, wishes: mixed.clone(), ..base() };
    let members = Bounds { proposers: 0, ticks: 2, crashes: 1, ..base() };
    vec![
        Bounds { title: "direct", wishes: three.clone(), ..base() },
        Bounds { title: "prepared", direct: false, wishes: mixed.clone(), ..base() },
        Bounds { title: "retries", retries: true, spare_ballots: 1, ..base() },
        Bounds { title: "releases", releases: 2, any_proposer: true, ..base() },
        Bounds {
            title: "releases_confirmed",
            releases: 2,
            any_proposer: true,
            confirmations: true,
            ticks: 1,
            ..base()
        },
        Bounds { title: "abandoned", abandons: 2, releases: 1, ..base() },
        Bounds { title: "renewal", ..renewal.clone() },
        Bounds {
            title: "renewal_and_release",
            releases: 1,
            any_proposer: true,
            ticks: 1,
            wishes: mixed,
            ..renewal.clone()
        },
        Bounds {
            title: "renewal_from_behind",
            any_proposer: true,
            counters: vec![0, 10],
            wishes: vec![w(1, 1), w(0, 1)],
            ticks: 1,
            ..renewal.clone()
        },
        Bounds { title: "crash", ..crash.clone() },
        Bounds { title: "slow_disk", slow_disk: true, ticks: 1, ..crash.clone() },
        Bounds {
            title: "slow_disk_and_snapshot",
            slow_disk: true,
            clean_restarts: 1,
            crashes: 0,
            ticks: 1,
            ..crash.clone()
        },
        Bounds { title: "prepared_and_crash", direct: false, ticks: 1, ..crash.clone() },
        Bounds { title: "two_crashes", crashes: 2, ticks: 1, ..crash.clone() },
        Bounds { title: "no_disk", disk: false, ..crash.clone() },
        Bounds { title: "snapshot_and_crash", clean_restarts: 1, ticks: 1, ..crash },
        Bounds { title: "reclaiming", sweeps: 1, ticks: 2, wishes: three, ..base() },
        Bounds {
            title: "two_names",
            sweeps: 1,
            ticks: 1,
            wishes: vec![w(0, 1).named(1), w(1, 1)],
            ..base()
        },
        Bounds { title: "members", ..members.clone() },
        Bounds { title: "members_renewing", renewals: 1, ..members },
        Bounds {
            title: "three_proposers",
            proposers: 3,
            wishes: vec![w(0, 1), w(1, 1), w(2, 1)],
            ..base()
        },
        Bounds { title: "one_acceptor", acceptors: 1, crashes: 1, ..renewal.clone() },
        Bounds { title: "two_acceptors", acceptors: 2, crashes: 1, ..base() },
        Bounds { title: "four_acceptors", acceptors: 4, ticks: 1, ..renewal },
        Bounds {
            title: "five_acceptors",
            acceptors: 5,
            proposers: 1,
            wishes: vec![w(0, 1), w(0, 1)],
            crashes: 1,
            ticks: 2,
            ..base()
        },
    ]
}

/// Larger bounds, the smallest first: minutes and gigabytes each.
#[must_use]
pub fn deep() -> Vec<Bounds> {
    let w = Wish::new;
    let mixed = vec![w(0, 2), w(1, 1)];
    let three = vec![w(0, 1), w(1, 1), w(0, 1)];
    let far = vec![0, 4 * BALLOT_BLOCK];
    let renewal = Bounds { renewals: 1, renewal_ticks: vec![1, 2], ..base() };
    let crash = Bounds { crashes: 1, counters: far.clone(), wishes: mixed.clone(), ..base() };
    let comeback = vec![w(0, 1).not_released(), w(1, 1).not_renewed().not_before(2)];
    let list = vec![
        Bounds {
            title: "slow disk, two crashes",
            slow_disk: true,
            crashes: 2,
            ticks: 1,
            ..crash.clone()
        },
        Bounds {
            title: "confirmed releases and a crash",
            releases: 2,
            confirmations: true,
            crashes: 1,
            ticks: 1,
            ..base()
        },
        Bounds { title: "slow disk, two ticks", slow_disk: true, ticks: 2, ..crash.clone() },
        Bounds {
            title: "slow disk, crash and snapshot",
            slow_disk: true,
            clean_restarts: 1,
            ticks: 1,
            ..crash.clone()
        },
        Bounds {
            title: "two crashes and a snapshot",
            crashes: 2,
            clean_restarts: 1,
            ticks: 1,
            ..crash.clone()
        },
        Bounds {
            title: "slow disk, a renewal and a crash",
            slow_disk: true,
            renewals: 1,
            renewal_ticks: vec![2],
            ticks: 1,
            ..crash.clone()
        },
        Bounds { title: "two acceptors", acceptors: 2, renewals: 2, crashes: 1, ..base() },
        Bounds {
            title: "confirmed releases, two ticks",
            releases: 2,
            any_proposer: true,
            confirmations: true,
            ticks: 2,
            ..base()
        },
        Bounds {
            title: "four acceptors",
            acceptors: 4,
            crashes: 1,
            renewals: 1,
            ticks: 2,
            ..base()
        },
        Bounds {
            title: "five acceptors",
            acceptors: 5,
            proposers: 1,
            wishes: vec![w(0, 1), w(0, 1)],
            crashes: 1,
            renewals: 1,
            ticks: 2,
            ..base()
        },
        Bounds {
            title: "prepared, three tenures",
            direct: false,
            ticks: 2,
            wishes: three.clone(),
            ..base()
        },
        Bounds {
            title: "retries and a crash",
            retries: true,
            spare_ballots: 1,
            ticks: 1,
            ..crash.clone()
        },
        Bounds { title: "renewals of 1 and 2 ticks", wishes: mixed.clone(), ..renewal.clone() },
        Bounds {
            title: "two renewals, through any node, and a release",
            renewals: 2,
            releases: 1,
            any_proposer: true,
            ticks: 1,
            wishes: mixed.clone(),
            ..renewal.clone()
        },
        Bounds {
            title: "two renewals around another tenure",
            renewals: 2,
            renewal_ticks: vec![2],
            releases: 1,
            ticks: 2,
            wishes: comeback,
            ..base()
        },
        Bounds {
            title: "a renewal and a crash",
            crashes: 1,
            counters: far,
            renewal_ticks: vec![2],
            ticks: 2,
            ..renewal.clone()
        },
        Bounds { title: "two crashes", crashes: 2, ..crash.clone() },
        Bounds {
            title: "crash, snapshot, reclaiming",
            clean_restarts: 1,
            sweeps: 1,
            ticks: 1,
            ..crash
        },
        Bounds {
            title: "two names, one floor",
            sweeps: 1,
            ticks: 1,
            wishes: vec![w(0, 1).named(1), w(0, 2), w(1, 1)],
            ..base()
        },
        Bounds {
            title: "members that propose, three tenures",
            proposers: 0,
            renewals: 1,
            crashes: 1,
            releases: 1,
            ticks: 2,
            wishes: three,
            ..base()
        },
        Bounds {
            title: "confirmed release and a renewal",
            proposers: 1,
            wishes: vec![w(0, 1), w(0, 1)],
            renewals: 1,
            releases: 1,
            confirmations: true,
            ticks: 1,
            ..base()
        },
        Bounds {
            title: "confirmed release and a renewal from behind",
            renewals: 1,
            releases: 1,
            any_proposer: true,
            confirmations: true,
            counters: vec![0, 10],
            wishes: vec![w(1, 1), w(0, 1)],
            ticks: 1,
            ..base()
        },
    ];
    list.into_iter().map(|bounds| Bounds { states_max: 40_000_000, ..bounds }).collect()
}

fn base() -> Bounds {
    Bounds::new("")
}

/// A core with one rule switched off, and what to find in which bounds.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The rule that is off.
    pub rule: Rule,
    /// What is to be found: two holders, or at least fences out of order.
    pub look: Look,
    /// Where.
    pub bounds: Bounds,
}

/// The rules whose harm takes so long a schedule that the search needs minutes: scripted in
/// `tests/comeback.rs`.
pub const SCRIPTED: [Rule; 6] = [
    Rule::RenewRaisesPromised,
    Rule::HealObeysBallot,
    Rule::HealReplacesOnlyLower,
    Rule::HealCarriesRenewalBallot,
    Rule::RecordlessNodeAsksFirst,
    Rule::RecordlessFloorIsLearnt,
];

/// The rules about clock drift: this world has none, the simulator's scripted schedules do.
pub const SIMULATED: [Rule; 2] = [Rule::BeliefKeepsDriftMargin, Rule::WaitedIsShrunkByDrift];

/// For every other rule, bounds in which a core without it does harm.
#[must_use]
pub fn mutants() -> Vec<Mutant> {
    use Look::{ForHarm, ForTwoHolders};
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
    let list = [
        (R::ProposeRefusesForeign, ForTwoHolders, base()),
        (R::ProposeRaisesPromised, ForHarm, slow_first.clone()),
        (R::RenewKeepsLater, ForTwoHolders, renewal.clone()),
        (R::RenewOnlyLive, ForHarm, Bounds { wishes: vec![w(0, 1), w(1, 1)], ..renewal.clone() }),
        (R::HealOnlyAfterMajority, ForHarm, Bounds { renewals: 1, ..base() }),
        (
            R::ReleaseMatchesTenure,
            ForTwoHolders,
            Bounds { wishes: vec![w(0, 1), w(1, 1), w(0, 1)], ..base() },
        ),
        (R::ReclaimFoldsIntoFloor, ForHarm, Bounds { sweeps: 2, ..slow_first.clone() }),
        (R::FloorStartsAtCeiling, ForHarm, Bounds { crashes: 1, ..slow_first }),
        (
            R::CounterStartsAtCeiling,
            ForTwoHolders,
            Bounds {
                crashes: 1,
                crashing: Crashing::Proposers,
                wishes: vec![w(0, 1), w(0, 1), w(1, 1)],
                ..base()
            },
        ),
        (R::LateMajorityCountsForNothing, ForHarm, base()),
        (R::AcceptsAreDistinct, ForTwoHolders, base()),
        (R::TimerIsArmedOnce, ForTwoHolders, Bounds { direct: false, ticks: 1, ..base() }),
        (R::VoidBeforeUndo, ForTwoHolders, Bounds { abandons: 1, ..base() }),
        (R::FailedRenewalIsNotUndone, ForTwoHolders, renewal.clone()),
        (R::AbandonReleasesFreshOnly, ForTwoHolders, Bounds { abandons: 1, ..renewal.clone() }),
        (R::RenewalHasFreshBallot, ForTwoHolders, renewal.clone()),
        (R::ReleaseDropsBeliefFirst, ForTwoHolders, Bounds { releases: 1, ..base() }),
        (
            R::ReleasedTenureIsNeverUsed,
            ForTwoHolders,
            Bounds { releases: 1, any_proposer: true, ticks: 1, ..renewal.clone() },
        ),
        (R::OnlyOwnTenureIsRenewed, ForTwoHolders, Bounds { adopters: true, ..renewal.clone() }),
        (
            R::RenewTtlIsBounded,
            ForTwoHolders,
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
        (R::QuarantineCoversLongestTtl, ForTwoHolders, crash.clone()),
        (
            R::LeaseCeilingCountsRenewals,
            ForTwoHolders,
            Bounds {
                crashes: 1,
                renewal_ticks: vec![2],
                wishes: vec![w(0, 1), w(1, 1).not_renewed()],
                counters: far_ahead,
                ..renewal
            },
        ),
        (
            R::LeaseCeilingKeptInQuarantine,
            ForTwoHolders,
            Bounds { crashes: 2, sweeps: 1, ..crash.clone() },
        ),
        (
            R::SnapshotIsUsedOnce,
            ForTwoHolders,
            Bounds { clean_restarts: 1, counters: both_ahead, ..crash.clone() },
        ),
        (R::NoSnapshotFromQuarantine, ForTwoHolders, Bounds { clean_restarts: 1, ..crash.clone() }),
        (R::QuorumIsMajority, ForTwoHolders, base()),
        (
            R::BallotWaitsForDisk,
            ForHarm,
            Bounds {
                slow_disk: true,
                crashes: 1,
                acceptors: 1,
                proposers: 3,
                // The first makes the ttl durable, the second's ballot is lost in the crash, and
                // the third's is above what is then the floor.
                counters: vec![0, 4 * BALLOT_BLOCK, 2 * BALLOT_BLOCK],
                wishes: vec![w(0, 1), w(1, 1).not_before(1), w(2, 1).not_before(2)],
                ticks: 2,
                ..base()
            },
        ),
        (R::TtlWaitsForDisk, ForTwoHolders, Bounds { slow_disk: true, ..crash.clone() }),
        (
            R::ReleaseNeedsMajority,
            ForHarm,
            Bounds { releases: 1, confirmations: true, ticks: 1, ..base() },
        ),
    ];
    let mutant = |(rule, look, bounds): (Rule, Look, Bounds)| Mutant {
        rule,
        look,
        bounds: Bounds { title: "mutant", rules: Rules::without(rule), ..bounds },
    };
    list.into_iter().map(mutant).collect()
}
