//! The bounds that we search, and for every rule bounds in which the core without it does harm.

use paxoslease_core::{BALLOT_BLOCK, Rule, Rules};

use crate::{Bounds, Checks, Client, Crashing};

/// Bounds that together take a minute or two on two cores. Each is searched to the end.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    let w = Client::new;
    let mixed = vec![w(0, 2), w(1, 1)];
    let three = vec![w(0, 1), w(1, 1), w(0, 1)];
    let far = vec![0, 4 * BALLOT_BLOCK];
    let renewal = Bounds { renewals: 1, ..base() };
    let crash = Bounds { crashes: 1, counters: far, clients: mixed.clone(), ..base() };
    let members = Bounds { proposers: 0, ticks: 2, crashes: 1, ..base() };
    vec![
        Bounds { title: "direct", clients: three.clone(), ..base() },
        Bounds { title: "prepared", direct: false, clients: mixed.clone(), ..base() },
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
            clients: mixed,
            ..renewal.clone()
        },
        Bounds {
            title: "renewal_from_behind",
            any_proposer: true,
            counters: vec![0, 10],
            clients: vec![w(1, 1), w(0, 1)],
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
        Bounds { title: "reclaiming", sweeps: 1, ticks: 2, clients: three, ..base() },
        Bounds {
            title: "two_names",
            sweeps: 1,
            ticks: 1,
            clients: vec![w(0, 1).named(1), w(1, 1)],
            ..base()
        },
        Bounds { title: "members", ..members.clone() },
        Bounds { title: "members_renewing", renewals: 1, ..members },
        Bounds {
            title: "three_proposers",
            proposers: 3,
            clients: vec![w(0, 1), w(1, 1), w(2, 1)],
            ..base()
        },
        Bounds { title: "one_acceptor", acceptors: 1, crashes: 1, ..renewal.clone() },
        Bounds { title: "two_acceptors", acceptors: 2, crashes: 1, ..base() },
        Bounds { title: "four_acceptors", acceptors: 4, ticks: 1, ..renewal },
        Bounds {
            title: "five_acceptors",
            acceptors: 5,
            proposers: 1,
            clients: vec![w(0, 1), w(0, 1)],
            crashes: 1,
            ticks: 2,
            ..base()
        },
    ]
}

/// Larger bounds, smallest first. Each takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Bounds> {
    let w = Client::new;
    let mixed = vec![w(0, 2), w(1, 1)];
    let three = vec![w(0, 1), w(1, 1), w(0, 1)];
    let far = vec![0, 4 * BALLOT_BLOCK];
    let renewal = Bounds { renewals: 1, renewal_ticks: vec![1, 2], ..base() };
    let crash = Bounds { crashes: 1, counters: far.clone(), clients: mixed.clone(), ..base() };
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
            clients: vec![w(0, 1), w(0, 1)],
            crashes: 1,
            renewals: 1,
            ticks: 2,
            ..base()
        },
        Bounds {
            title: "prepared, three tenures",
            direct: false,
            ticks: 2,
            clients: three.clone(),
            ..base()
        },
        Bounds {
            title: "retries and a crash",
            retries: true,
            spare_ballots: 1,
            ticks: 1,
            ..crash.clone()
        },
        Bounds { title: "renewals of 1 and 2 ticks", clients: mixed.clone(), ..renewal.clone() },
        Bounds {
            title: "two renewals, through any node, and a release",
            renewals: 2,
            releases: 1,
            any_proposer: true,
            ticks: 1,
            clients: mixed.clone(),
            ..renewal.clone()
        },
        Bounds {
            title: "two renewals around another tenure",
            renewals: 2,
            renewal_ticks: vec![2],
            releases: 1,
            ticks: 2,
            clients: comeback,
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
            clients: vec![w(0, 1).named(1), w(0, 2), w(1, 1)],
            ..base()
        },
        Bounds {
            title: "members that propose, three tenures",
            proposers: 0,
            crashes: 1,
            releases: 1,
            ticks: 2,
            clients: three,
            ..base()
        },
        Bounds {
            title: "confirmed release and a renewal",
            proposers: 1,
            clients: vec![w(0, 1), w(0, 1)],
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
            clients: vec![w(1, 1), w(0, 1)],
            ticks: 1,
            ..base()
        },
    ];
    list.into_iter().map(|bounds| Bounds { states_max: 40_000_000, ..bounds }).collect()
}

fn base() -> Bounds {
    Bounds::new("")
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
    use Checks::{Harm, TwoHolders};
    use Rule as R;
    let w = Client::new;
    // The contender's ballots are above those of the holder's renewals.
    let ahead = vec![0, 10];
    // Above every floor that a restart sets.
    let far_ahead = vec![0, 4 * BALLOT_BLOCK];
    let both_ahead = vec![4 * BALLOT_BLOCK, 8 * BALLOT_BLOCK];
    let long_then_short = vec![w(0, 2), w(1, 1).not_renewed()];
    let slow_first = Bounds { clients: vec![w(0, 2), w(1, 1)], ticks: 1, ..base() };
    let renewal = Bounds {
        renewals: 1,
        renewal_ticks: vec![1],
        clients: long_then_short.clone(),
        counters: ahead.clone(),
        ticks: 2,
        ..base()
    };
    let crash = Bounds {
        crashes: 1,
        clients: long_then_short,
        counters: far_ahead.clone(),
        ticks: 1,
        ..base()
    };
    let list = [
        (R::ProposeRefusesForeign, TwoHolders, base()),
        (R::ProposeRaisesPromised, Harm, slow_first.clone()),
        (R::RenewKeepsLater, TwoHolders, renewal.clone()),
        (R::RenewOnlyLive, Harm, Bounds { clients: vec![w(0, 1), w(1, 1)], ..renewal.clone() }),
        (R::HealOnlyAfterMajority, Harm, Bounds { renewals: 1, ..base() }),
        (
            R::ReleaseMatchesTenure,
            TwoHolders,
            Bounds { clients: vec![w(0, 1), w(1, 1), w(0, 1)], ..base() },
        ),
        (R::ReclaimFoldsIntoFloor, Harm, Bounds { sweeps: 2, ..slow_first.clone() }),
        (R::FloorStartsAtCeiling, Harm, Bounds { crashes: 1, ..slow_first }),
        (
            R::CounterStartsAtCeiling,
            TwoHolders,
            Bounds {
                crashes: 1,
                crashing: Crashing::Proposers,
                clients: vec![w(0, 1), w(0, 1), w(1, 1)],
                ..base()
            },
        ),
        (R::LateMajorityCountsForNothing, Harm, base()),
        (R::AcceptsAreDistinct, TwoHolders, base()),
        (R::TimerIsArmedOnce, TwoHolders, Bounds { direct: false, ticks: 1, ..base() }),
        (R::VoidBeforeUndo, TwoHolders, Bounds { abandons: 1, ..base() }),
        (R::FailedRenewalIsNotUndone, TwoHolders, renewal.clone()),
        (R::AbandonReleasesFreshOnly, TwoHolders, Bounds { abandons: 1, ..renewal.clone() }),
        (R::RenewalHasFreshBallot, TwoHolders, renewal.clone()),
        (R::ReleaseDropsBeliefFirst, TwoHolders, Bounds { releases: 1, ..base() }),
        (
            R::ReleasedTenureIsNeverUsed,
            TwoHolders,
            Bounds { releases: 1, any_proposer: true, ticks: 1, ..renewal.clone() },
        ),
        (R::OnlyOwnTenureIsRenewed, TwoHolders, Bounds { adopters: true, ..renewal.clone() }),
        (
            R::RenewTtlIsBounded,
            TwoHolders,
            Bounds {
                disk: false,
                crashes: 1,
                max_ticks: 1,
                renewal_ticks: vec![2],
                clients: vec![w(0, 1), w(1, 1).not_renewed()],
                counters: far_ahead.clone(),
                ..renewal.clone()
            },
        ),
        (R::QuarantineCoversLongestTtl, TwoHolders, crash.clone()),
        (
            R::LeaseCeilingCountsRenewals,
            TwoHolders,
            Bounds {
                crashes: 1,
                renewal_ticks: vec![2],
                clients: vec![w(0, 1), w(1, 1).not_renewed()],
                counters: far_ahead,
                ..renewal
            },
        ),
        (
            R::LeaseCeilingKeptInQuarantine,
            TwoHolders,
            Bounds { crashes: 2, sweeps: 1, ..crash.clone() },
        ),
        (
            R::SnapshotIsUsedOnce,
            TwoHolders,
            Bounds { clean_restarts: 1, counters: both_ahead, ..crash.clone() },
        ),
        (R::NoSnapshotFromQuarantine, TwoHolders, Bounds { clean_restarts: 1, ..crash.clone() }),
        (R::QuorumIsMajority, TwoHolders, base()),
        (
            R::BallotWaitsForDisk,
            Harm,
            Bounds {
                slow_disk: true,
                crashes: 1,
                acceptors: 1,
                proposers: 3,
                // The first client makes the ttl durable, the second client's ballot is lost in the
                // crash, and the third client's ballot is above the new floor.
                counters: vec![0, 4 * BALLOT_BLOCK, 2 * BALLOT_BLOCK],
                clients: vec![w(0, 1), w(1, 1).not_before(1), w(2, 1).not_before(2)],
                ticks: 2,
                ..base()
            },
        ),
        (R::TtlWaitsForDisk, TwoHolders, Bounds { slow_disk: true, ..crash.clone() }),
        (
            R::ReleaseNeedsMajority,
            Harm,
            Bounds { releases: 1, confirmations: true, ticks: 1, ..base() },
        ),
    ];
    let mutant = |(rule, checks, bounds): (Rule, Checks, Bounds)| Mutant {
        rule,
        checks,
        bounds: Bounds { title: "mutant", rules: Rules::without(rule), ..bounds },
    };
    list.into_iter().map(mutant).collect()
}
