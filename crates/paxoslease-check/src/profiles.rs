//! The bounds that we search, and for every rule bounds in which the core without it does harm.

use paxoslease_core::{BALLOT_BLOCK, Rule, Rules};

use crate::{Bounds, Checks, Client, Crashing};

/// Bounds that together take a minute or two on two cores. Each is searched to the end.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    let short = Bounds { ticks: 1, ..base() };
    let releases = Bounds { releases: 2, any_proposer: true, ..base() };
    let renewal = Bounds { renewals: 1, ..base() };
    let elsewhere = Bounds { any_proposer: true, ticks: 1, ..renewal.clone() };
    let (crash, snapshot) = (crash(), Bounds { clean_restarts: 1, ticks: 1, ..crash() });
    let members = Bounds { proposers: 0, ticks: 2, crashes: 1, ..base() };
    let (two_names, each) = (vec![w(0, 1).named(1), w(1, 1)], vec![w(0, 1), w(1, 1), w(2, 1)]);
    vec![
        Bounds { title: "direct", clients: three(), ..base() },
        Bounds { title: "prepared", direct: false, clients: mixed(), ..base() },
        Bounds { title: "retries", retries: true, spare_ballots: 1, ..base() },
        Bounds { title: "releases", ..releases.clone() },
        Bounds { title: "releases_confirmed", confirmations: true, ticks: 1, ..releases },
        Bounds { title: "abandoned", abandons: 2, releases: 1, ..base() },
        Bounds { title: "renewal", ..renewal.clone() },
        Bounds { title: "renewal_and_release", releases: 1, clients: mixed(), ..elsewhere.clone() },
        Bounds { title: "renewal_from_behind", ..from_behind(elsewhere) },
        Bounds { title: "crash", ..crash.clone() },
        Bounds { title: "slow_disk", slow_disk: true, ticks: 1, ..crash.clone() },
        Bounds { title: "slow_disk_and_snapshot", slow_disk: true, crashes: 0, ..snapshot.clone() },
        Bounds { title: "prepared_and_crash", direct: false, ticks: 1, ..crash.clone() },
        Bounds { title: "two_crashes", crashes: 2, ticks: 1, ..crash.clone() },
        Bounds { title: "no_disk", disk: false, ..crash },
        Bounds { title: "snapshot_and_crash", ..snapshot },
        Bounds { title: "reclaiming", sweeps: 1, ticks: 2, clients: three(), ..base() },
        Bounds { title: "two_names", sweeps: 1, clients: two_names, ..short },
        Bounds { title: "members", ..members.clone() },
        Bounds { title: "members_renewing", renewals: 1, ..members },
        Bounds { title: "three_proposers", proposers: 3, clients: each, ..base() },
        Bounds { title: "one_acceptor", acceptors: 1, crashes: 1, ..renewal.clone() },
        Bounds { title: "two_acceptors", acceptors: 2, crashes: 1, ..base() },
        Bounds { title: "four_acceptors", acceptors: 4, ticks: 1, ..renewal },
        Bounds { title: "five_acceptors", crashes: 1, ..five() },
    ]
}

/// Larger bounds, smallest first. Each takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Bounds> {
    let confirmed = Bounds { confirmations: true, ticks: 1, ..base() };
    let (crash, crash_short) = (crash(), Bounds { ticks: 1, ..crash() });
    let slow_disk = Bounds { slow_disk: true, ..crash_short.clone() };
    let renewal = Bounds { renewals: 1, renewal_ticks: vec![1, 2], ..base() };
    let any_node = Bounds { any_proposer: true, releases: 1, ticks: 1, ..renewal.clone() };
    let both = Bounds { renewals: 1, releases: 1, ..confirmed.clone() };
    let comeback = vec![w(0, 1).not_released(), w(1, 1).not_renewed().not_before(2)];
    let around = Bounds { releases: 1, ticks: 2, clients: comeback, ..base() };
    let two_names = vec![w(0, 1).named(1), w(0, 2), w(1, 1)];
    let members = Bounds { proposers: 0, crashes: 1, ticks: 2, clients: three(), ..base() };
    let list = vec![
        Bounds { title: "slow disk, two crashes", crashes: 2, ..slow_disk.clone() },
        Bounds {
            title: "confirmed releases and a crash",
            releases: 2,
            crashes: 1,
            ..confirmed.clone()
        },
        Bounds { title: "slow disk, two ticks", ticks: 2, ..slow_disk.clone() },
        Bounds { title: "slow disk, crash and snapshot", clean_restarts: 1, ..slow_disk.clone() },
        Bounds {
            title: "two crashes and a snapshot",
            crashes: 2,
            clean_restarts: 1,
            ..crash_short.clone()
        },
        Bounds {
            title: "slow disk, a renewal and a crash",
            renewals: 1,
            renewal_ticks: vec![2],
            ..slow_disk
        },
        Bounds { title: "two acceptors", acceptors: 2, renewals: 2, crashes: 1, ..base() },
        Bounds {
            title: "confirmed releases, two ticks",
            releases: 2,
            any_proposer: true,
            ticks: 2,
            ..confirmed
        },
        Bounds {
            title: "four acceptors",
            acceptors: 4,
            crashes: 1,
            renewals: 1,
            ticks: 2,
            ..base()
        },
        Bounds { title: "five acceptors", crashes: 1, renewals: 1, ..five() },
        Bounds {
            title: "prepared, three tenures",
            direct: false,
            ticks: 2,
            clients: three(),
            ..base()
        },
        Bounds {
            title: "retries and a crash",
            retries: true,
            spare_ballots: 1,
            ..crash_short.clone()
        },
        Bounds { title: "renewals of 1 and 2 ticks", clients: mixed(), ..renewal.clone() },
        Bounds {
            title: "two renewals, through any node, and a release",
            renewals: 2,
            clients: mixed(),
            ..any_node
        },
        Bounds {
            title: "two renewals around another tenure",
            renewals: 2,
            renewal_ticks: vec![2],
            ..around
        },
        Bounds {
            title: "a renewal and a crash",
            crashes: 1,
            counters: far(),
            renewal_ticks: vec![2],
            ticks: 2,
            ..renewal
        },
        Bounds { title: "two crashes", crashes: 2, ..crash },
        Bounds {
            title: "crash, snapshot, reclaiming",
            clean_restarts: 1,
            sweeps: 1,
            ..crash_short
        },
        Bounds { title: "two names, one floor", sweeps: 1, ticks: 1, clients: two_names, ..base() },
        Bounds { title: "members that propose, three tenures", releases: 1, ..members },
        Bounds {
            title: "confirmed release and a renewal",
            proposers: 1,
            clients: vec![w(0, 1), w(0, 1)],
            ..both.clone()
        },
        Bounds {
            title: "confirmed release and a renewal from behind",
            any_proposer: true,
            ..from_behind(both)
        },
    ];
    list.into_iter().map(|bounds| Bounds { states_max: 40_000_000, ..bounds }).collect()
}

fn base() -> Bounds {
    Bounds::new("")
}

const fn w(proposer: u8, ticks: u8) -> Client {
    Client::new(proposer, ticks)
}

fn mixed() -> Vec<Client> {
    vec![w(0, 2), w(1, 1)]
}

fn three() -> Vec<Client> {
    vec![w(0, 1), w(1, 1), w(0, 1)]
}

/// The second proposer's ballots are above every floor that a restart sets.
fn far() -> Vec<u64> {
    vec![0, 4 * BALLOT_BLOCK]
}

fn crash() -> Bounds {
    Bounds { crashes: 1, counters: far(), clients: mixed(), ..base() }
}

fn five() -> Bounds {
    let clients = vec![w(0, 1), w(0, 1)];
    Bounds { acceptors: 5, proposers: 1, clients, ticks: 2, ..base() }
}

/// The first client uses the proposer with the higher ballots.
fn from_behind(bounds: Bounds) -> Bounds {
    Bounds { counters: vec![0, 10], clients: vec![w(1, 1), w(0, 1)], ..bounds }
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
    let long_then_short = vec![w(0, 2), w(1, 1).not_renewed()];
    let short_then_short = vec![w(0, 1), w(1, 1).not_renewed()];
    let slow_first = Bounds { clients: mixed(), ticks: 1, ..base() };
    // The contender's ballots are above those of the holder's renewals.
    let renewal = Bounds {
        renewals: 1,
        clients: long_then_short.clone(),
        counters: vec![0, 10],
        ticks: 2,
        ..base()
    };
    let crash = Bounds { clients: long_then_short, ticks: 1, ..crash() };
    let crash_of_renewed = Bounds {
        crashes: 1,
        renewal_ticks: vec![2],
        clients: short_then_short,
        counters: far(),
        ..renewal.clone()
    };
    let released = Bounds { releases: 1, any_proposer: true, ticks: 1, ..renewal.clone() };
    let unbounded = Bounds { disk: false, max_ticks: 1, ..crash_of_renewed.clone() };
    let proposer_crash = Bounds {
        crashes: 1,
        crashing: Crashing::Proposers,
        clients: vec![w(0, 1), w(0, 1), w(1, 1)],
        ..base()
    };
    let both_ahead = vec![4 * BALLOT_BLOCK, 8 * BALLOT_BLOCK];
    let snapshot = Bounds { clean_restarts: 1, ..crash.clone() };
    // The first client makes the ttl durable, the second client's ballot is lost in the crash, and
    // the third client's ballot is above the new floor.
    let lost_ballot = Bounds {
        slow_disk: true,
        crashes: 1,
        acceptors: 1,
        proposers: 3,
        counters: vec![0, 4 * BALLOT_BLOCK, 2 * BALLOT_BLOCK],
        clients: vec![w(0, 1), w(1, 1).not_before(1), w(2, 1).not_before(2)],
        ticks: 2,
        ..base()
    };
    let confirmed = Bounds { releases: 1, confirmations: true, ticks: 1, ..base() };
    let list = [
        (R::ProposeRefusesForeign, TwoHolders, base()),
        (R::ProposeRaisesPromised, Harm, slow_first.clone()),
        (R::RenewKeepsLater, TwoHolders, renewal.clone()),
        (R::RenewOnlyLive, Harm, Bounds { clients: vec![w(0, 1), w(1, 1)], ..renewal.clone() }),
        (R::HealOnlyAfterMajority, Harm, Bounds { renewals: 1, ..base() }),
        (R::ReleaseMatchesTenure, TwoHolders, Bounds { clients: three(), ..base() }),
        (R::ReclaimFoldsIntoFloor, Harm, Bounds { sweeps: 2, ..slow_first.clone() }),
        (R::FloorStartsAtCeiling, Harm, Bounds { crashes: 1, ..slow_first }),
        (R::CounterStartsAtCeiling, TwoHolders, proposer_crash),
        (R::LateMajorityCountsForNothing, Harm, base()),
        (R::AcceptsAreDistinct, TwoHolders, base()),
        (R::TimerIsArmedOnce, TwoHolders, Bounds { direct: false, ticks: 1, ..base() }),
        (R::VoidBeforeUndo, TwoHolders, Bounds { abandons: 1, ..base() }),
        (R::FailedRenewalIsNotUndone, TwoHolders, renewal.clone()),
        (R::AbandonReleasesFreshOnly, TwoHolders, Bounds { abandons: 1, ..renewal.clone() }),
        (R::RenewalHasFreshBallot, TwoHolders, renewal.clone()),
        (R::ReleaseDropsBeliefFirst, TwoHolders, Bounds { releases: 1, ..base() }),
        (R::ReleasedTenureIsNeverUsed, TwoHolders, released),
        (R::OnlyOwnTenureIsRenewed, TwoHolders, Bounds { adopters: true, ..renewal }),
        (R::RenewTtlIsBounded, TwoHolders, unbounded),
        (R::QuarantineCoversLongestTtl, TwoHolders, crash.clone()),
        (R::LeaseCeilingCountsRenewals, TwoHolders, crash_of_renewed),
        (
            R::LeaseCeilingKeptInQuarantine,
            TwoHolders,
            Bounds { crashes: 2, sweeps: 1, ..crash.clone() },
        ),
        (R::SnapshotIsUsedOnce, TwoHolders, Bounds { counters: both_ahead, ..snapshot.clone() }),
        (R::NoSnapshotFromQuarantine, TwoHolders, snapshot),
        (R::QuorumIsMajority, TwoHolders, base()),
        (R::BallotWaitsForDisk, Harm, lost_ballot),
        (R::TtlWaitsForDisk, TwoHolders, Bounds { slow_disk: true, ..crash }),
        (R::ReleaseNeedsMajority, Harm, confirmed),
    ];
    let mutant = |(rule, checks, bounds): (Rule, Checks, Bounds)| Mutant {
        rule,
        checks,
        bounds: Bounds { title: "mutant", rules: Rules::without(rule), ..bounds },
    };
    list.into_iter().map(mutant).collect()
}
