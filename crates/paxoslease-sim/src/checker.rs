//! The checks that must hold in every world, made on every event, in true time.
//!
//! The checker is independent of the algorithms: it sees beliefs, what acceptors store, answers and
//! message kinds, and shares no code with the core. The swarm checks liveness, after all faults
//! have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use paxoslease_core::{Ballot, Tenure};

use crate::algorithm::{Packet, View};
use crate::clock::Clock;
use crate::trace::TrueTime;

/// A property that must hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum Check {
    /// At most one client holds a name at any true instant.
    OneHolder = 1,
    /// A majority of the members stores every belief until its end, not counting restarts since.
    /// In a joint epoch, the members are those of the old set.
    BeliefIsBacked = 1 << 1,
    /// An acceptor's promise never falls while the acceptor runs.
    PromisesKept = 1 << 2,
    /// An acceptor's promise never falls across restarts.
    PromisesSurvive = 1 << 3,
    /// No acceptor replaces another tenure's live lease, unless a higher tenure was granted.
    ForeignLeaseKept = 1 << 4,
    /// The fence of a grant is above all earlier fences; that of a renewal is not below them.
    FencesRise = 1 << 5,
    /// No node issues a ballot again after a restart.
    BallotsAreFresh = 1 << 6,
    /// No acceptor answers while a lease that it forgot could be live.
    SilentAfterCrash = 1 << 7,
    /// A grant was accepted by a majority of the members of some epoch.
    GrantHasMajority = 1 << 8,
    /// After all faults have ended, every client makes progress.
    Progress = 1 << 9,
    /// Nodes keep no state for requests that are over.
    NothingLeaks = 1 << 10,
    /// After a clean stop an acceptor has every lease that it had, with at least the same end.
    LeasesHandedOn = 1 << 11,
    /// No client is denied because of a tenure whose release was confirmed before the client asked.
    ReleaseFrees = 1 << 12,
    /// While one member is down, free names are granted and leases are renewed.
    MinorityStopsNothing = 1 << 13,
    /// No waiter waits through more than a few hand-overs for each contender.
    TurnsAreTaken = 1 << 14,
    /// A node answers every request once, except requests that were abandoned.
    AnsweredOnce = 1 << 15,
    /// All nodes in one epoch have the same members.
    OneConfiguration = 1 << 16,
    /// A durable lease is not lost before its end.
    DurableLeasesLast = 1 << 17,
}

/// A set of checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks(u32);

impl Checks {
    /// All of them.
    pub const ALL: Self = Self(u32::MAX);

    /// All of these checks, except one.
    #[must_use]
    pub const fn without(self, check: Check) -> Self {
        Self(self.0 & !(check as u32))
    }

    /// Only these checks.
    #[must_use]
    pub fn only(checks: &[Check]) -> Self {
        Self(checks.iter().fold(0, |set, check| set | *check as u32))
    }

    /// Whether this check is in the set.
    #[must_use]
    pub const fn has(self, check: Check) -> bool {
        self.0 & check as u32 != 0
    }
}

/// A check that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When the check failed, in true time.
    pub at: TrueTime,
    /// The check that failed.
    pub check: Check,
    /// What was found, for people.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.at, self.check, self.text)
    }
}

/// A client's belief, in true time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The number of the client.
    pub client: u32,
    /// The tenure that it holds.
    pub tenure: Tenure,
    /// When the client sent the request. Acceptors that restarted since then need not store it.
    pub since: TrueTime,
    /// When the belief ends, unless it is renewed.
    pub until: TrueTime,
    /// Whether a majority has to store the lease until the belief ends. A durable
    /// lease is backed by registers instead.
    pub is_backed: bool,
}

/// What an acceptor stores, in true time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The lowest ballot that a round for this name may have.
    pub promised: Ballot,
    /// The last accepted lease: its tenure and its end.
    pub lease: Option<(Tenure, TrueTime)>,
}

impl Stored {
    /// What a process stores, converted to true time by its clock. An expired lease does not count,
    /// and the acceptor may keep or drop it: it stays as it was `before`.
    #[must_use]
    pub fn seen(view: Option<View>, clock: &Clock, now: TrueTime, before: Self) -> Self {
        let Some(view) = view else { return Self::default() };
        let lease = view.accepted.map(|(tenure, until)| (tenure, clock.first_shows(until)));
        let lease = lease.filter(|(_, until)| *until > now || lease == before.lease);
        Self { promised: view.promised, lease }
    }
}

#[derive(Clone, Debug, Default)]
struct NameFacts {
    claims: Vec<Claim>,
    highest_fence: u64,
    /// For each tenure: the acceptors that stored it, as a bit set, and the latest end at any of
    /// them.
    stored_by: BTreeMap<u64, (u64, TrueTime)>,
    /// Tenures that their holders released.
    released: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct NodeFacts {
    stored: Vec<Stored>,
    /// When the node last lost or regained its memory.
    fresh_since: TrueTime,
    /// Leases that the node forgot may be live until then.
    silent_until: TrueTime,
    /// For each name, the lease that a clean stop left to the next start.
    handed_on: Vec<Option<(Tenure, TrueTime)>>,
    ballot_max: u64,
    ballot_max_before: u64,
}

/// The number of tenures per name after which ended ones are dropped.
const TENURES_MAX: usize = 256;
/// The most violations kept: more say nothing new.
const VIOLATIONS_MAX: usize = 64;

/// Checks a world: the one of this crate, or any other that reports its events in order of true
/// time.
#[derive(Clone, Debug)]
pub struct Checker {
    checks: Checks,
    /// The members of each epoch, as sets of bits.
    sets: Vec<u64>,
    names: Vec<NameFacts>,
    nodes: Vec<NodeFacts>,
    violations: Vec<Violation>,
    reported: usize,
}

impl Checker {
    /// A checker for nodes of which the first `members` are acceptors.
    #[must_use]
    pub fn new(checks: Checks, members: u16, nodes: usize, names: usize) -> Self {
        let stored = vec![Stored::default(); names];
        Self {
            checks,
            sets: vec![(1 << members) - 1],
            names: vec![NameFacts::default(); names],
            nodes: vec![NodeFacts { stored, ..NodeFacts::default() }; nodes],
            violations: Vec::new(),
            reported: 0,
        }
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The violations since the last call.
    pub fn unreported(&mut self) -> &[Violation] {
        let reported = std::mem::replace(&mut self.reported, self.violations.len());
        &self.violations[reported..]
    }

    /// Reports a violation that the caller found.
    pub fn broken(&mut self, at: TrueTime, check: Check, text: impl FnOnce() -> String) {
        if self.checks.has(check) && self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, check, text: text() });
        }
    }

    /// The members change to these nodes. From now on they back every belief.
    pub fn members_change(&mut self, now: TrueTime, members: impl IntoIterator<Item = usize>) {
        let set = members.into_iter().fold(0, |set, node| set | 1 << node);
        if self.sets.last() != Some(&set) {
            self.sets.push(set);
            (0..self.names.len()).for_each(|name| self.check_backing(now, name));
        }
    }

    /// A client begins or prolongs a belief.
    pub fn believes(&mut self, now: TrueTime, name: usize, mut claim: Claim) {
        let claims = &mut self.names[name].claims;
        let own = claims.iter().find(|c| c.client == claim.client && c.tenure == claim.tenure);
        if let Some(longer) = own.filter(|own| own.until >= claim.until) {
            // A shorter renewal changes nothing: the belief rests on the same leases as before.
            claim = *longer;
        }
        claims.retain(|other| other.until > now && other.client != claim.client);
        let rival = claims.first().copied();
        claims.push(claim);
        if let Some(rival) = rival {
            self.broken(now, Check::OneHolder, || {
                let Claim { client, tenure, until, .. } = claim;
                let (other, theirs, end) = (rival.client, rival.tenure, rival.until);
                format!(
                    "client {client} holds {tenure} until {until} while \
                     client {other} holds {theirs} until {end}"
                )
            });
        }
        self.check_backing(now, name);
    }

    /// A client ended its belief.
    pub fn yields(&mut self, name: usize, client: u32) {
        self.names[name].claims.retain(|claim| claim.client != client);
    }

    /// A client released a tenure: from now on acceptors may drop it.
    pub fn released(&mut self, name: usize, tenure: Tenure) {
        let released = &mut self.names[name].released;
        released.insert(tenure.fence());
        if released.len() > TENURES_MAX {
            released.pop_first();
        }
    }

    /// A holder embedded in the node that renewed a lease may believe this. A remote client counts
    /// from before its request, so its belief would not reveal a node that counts from too late.
    pub fn may_believe(&mut self, now: TrueTime, name: usize, claim: Claim) {
        if !self.names[name].released.contains(&claim.tenure.fence()) {
            self.check_claim(now, name, claim);
        }
    }

    fn check_backing(&mut self, now: TrueTime, name: usize) {
        for place in 0..self.names[name].claims.len() {
            self.check_claim(now, name, self.names[name].claims[place]);
        }
    }

    fn check_claim(&mut self, now: TrueTime, name: usize, claim: Claim) {
        if claim.until <= now || !claim.is_backed {
            return;
        }
        let backs = |node: &&NodeFacts| {
            let outlives = |(tenure, until): (Tenure, TrueTime)| {
                tenure == claim.tenure && until >= claim.until
            };
            node.stored[name].lease.is_some_and(outlives) || node.fresh_since > claim.since
        };
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| backs(node));
        let backing = nodes.fold(0, |set: u64, (node, _)| set | 1 << node);
        let members = self.sets.last().copied().unwrap_or_default();
        if !has_majority(backing, members) {
            let backing = (backing & members).count_ones();
            self.broken(now, Check::BeliefIsBacked, || {
                let Claim { client, tenure, until, .. } = claim;
                format!("client {client} holds {tenure} until {until}, backed by {backing}")
            });
        }
    }

    /// An acceptor changed what it stores.
    pub fn stores(&mut self, now: TrueTime, node: usize, name: usize, stored: Stored) {
        let before = std::mem::replace(&mut self.nodes[node].stored[name], stored);
        if stored.promised < before.promised {
            self.broken(now, Check::PromisesKept, || {
                let (was, is) = (before.promised, stored.promised);
                format!("node {} promised {was}, then {is}", node + 1)
            });
        }
        if stored.lease == before.lease {
            return;
        }
        if let Some((tenure, until)) = stored.lease {
            let stored_by = &mut self.names[name].stored_by;
            let (nodes, longest) = stored_by.entry(tenure.fence()).or_default();
            *nodes |= 1 << node;
            *longest = until.max(*longest);
            // A tenure that has expired at every acceptor can no longer be granted.
            if stored_by.len().is_multiple_of(TENURES_MAX) {
                stored_by.retain(|_, (_, until)| *until > now);
            }
            if let Some((other, until)) = before.lease
                && other != tenure
                && until > now
                && !self.is_below_a_grant(name, other, tenure)
                && !self.may_be_over(node, name, other)
            {
                self.broken(now, Check::ForeignLeaseKept, || {
                    format!("node {} replaced {other}, live until {until}, by {tenure}", node + 1)
                });
            }
        }
        self.check_backing(now, name);
    }

    /// Whether a Heal may have replaced a live lease (A5): by a higher tenure that was granted.
    fn is_below_a_grant(&self, name: usize, replaced: Tenure, by: Tenure) -> bool {
        replaced < by && by.fence() <= self.names[name].highest_fence
    }

    /// Whether a live lease may have ended within one event, so that the checker never saw the
    /// state in between: its holder released it, or the node itself had proposed it and gave it up.
    fn may_be_over(&self, node: usize, name: usize, tenure: Tenure) -> bool {
        let own = tenure.ballot().node().is_some_and(|id| usize::from(id.get()) == node + 1);
        let facts = &self.names[name];
        let believed = facts.claims.iter().any(|claim| claim.tenure == tenure);
        facts.released.contains(&tenure.fence()) || own && !believed
    }

    /// What an acceptor stored at the last event.
    #[must_use]
    pub fn stored(&self, node: usize, name: usize) -> Stored {
        self.nodes[node].stored[name]
    }

    /// A node lost its memory. `forgotten`: no snapshot preserves its leases.
    pub fn ended(&mut self, now: TrueTime, node: usize, forgotten: bool) {
        let node = &mut self.nodes[node];
        node.fresh_since = now;
        node.ballot_max_before = node.ballot_max;
        node.handed_on.clear();
        for stored in &mut node.stored {
            let lease = stored.lease.take().filter(|(_, until)| *until > now);
            if let Some((_, until)) = lease.filter(|_| forgotten) {
                node.silent_until = node.silent_until.max(until);
            }
            node.handed_on.push(lease.filter(|_| !forgotten));
        }
    }

    /// A node starts; `stored` has an entry for each name.
    pub fn started(&mut self, now: TrueTime, node: usize, stored: &[Stored]) {
        self.nodes[node].fresh_since = now;
        let handed_on = std::mem::take(&mut self.nodes[node].handed_on);
        for (name, new) in stored.iter().enumerate() {
            if let Some((tenure, until)) = handed_on.get(name).copied().flatten()
                && !new.lease.is_some_and(|(kept, still)| kept == tenure && still >= until)
            {
                self.broken(now, Check::LeasesHandedOn, || {
                    format!(
                        "node {} had {tenure:?} until {until}, and now {:?}",
                        node + 1,
                        new.lease
                    )
                });
            }
            let promised = self.nodes[node].stored[name].promised;
            if new.promised < promised {
                let is = new.promised;
                self.broken(now, Check::PromisesSurvive, || {
                    format!("node {} promised {promised}, and after a restart {is}", node + 1)
                });
            }
            self.nodes[node].stored[name].promised = new.promised.min(promised);
            self.stores(now, node, name, *new);
        }
    }

    /// A node lost its data folder, and with it its snapshot and its ballots. Ballots that no
    /// majority accepted may come again.
    pub fn lost_disk(&mut self, now: TrueTime, node: usize) {
        self.ended(now, node, true);
        let facts = &mut self.nodes[node];
        (facts.ballot_max, facts.ballot_max_before) = (0, 0);
    }

    /// A node sent a message.
    pub fn sent(&mut self, now: TrueTime, node: usize, packet: &Packet) {
        let facts = &mut self.nodes[node];
        if packet.is_reply && now < facts.silent_until {
            let until = facts.silent_until;
            self.broken(now, Check::SilentAfterCrash, || {
                let kind = packet.kind;
                format!("node {} sent {kind}; a lease it forgot lives until {until}", node + 1)
            });
        } else if let Some(round) = packet.round {
            facts.ballot_max = facts.ballot_max.max(round.as_u64());
            if round.as_u64() <= facts.ballot_max_before {
                self.broken(now, Check::BallotsAreFresh, || {
                    format!("node {} began {round} again after a restart", node + 1)
                });
            }
        }
    }

    /// The highest fence that was granted.
    pub(crate) fn highest_fence(&self, name: usize) -> u64 {
        self.names[name].highest_fence
    }

    /// The end of a durable lease is set. Another operation may have raised its fence meanwhile, so
    /// only what was granted `before` this one was asked counts.
    pub(crate) fn kept(&mut self, now: TrueTime, name: usize, tenure: Tenure, before: u64) {
        let facts = &mut self.names[name];
        let (fence, is_over) = (tenure.fence(), facts.released.contains(&tenure.fence()));
        if is_over {
            return;
        }
        facts.highest_fence = facts.highest_fence.max(fence);
        if fence < before {
            let latest = Tenure::from_fence(before).map_or_else(String::new, |t| t.to_string());
            self.broken(now, Check::FencesRise, || format!("{tenure} was kept after {latest}"));
        }
    }

    /// A node granted or renewed a tenure.
    pub fn granted(&mut self, now: TrueTime, name: usize, tenure: Tenure, is_fresh: bool) {
        let facts = &mut self.names[name];
        let (fence, before) = (tenure.fence(), facts.highest_fence);
        // A late answer: the holder has released the tenure since and ignores the answer (P6).
        if !is_fresh && facts.released.contains(&fence) {
            return;
        }
        facts.highest_fence = before.max(fence);
        let acceptors = facts.stored_by.get(&fence).map_or(0, |(nodes, _)| *nodes);
        let is_accepted = self.sets.iter().any(|members| has_majority(acceptors, *members));
        if fence < before || is_fresh && fence == before {
            let latest = Tenure::from_fence(before).map_or_else(String::new, |t| t.to_string());
            self.broken(now, Check::FencesRise, || format!("{tenure} was granted after {latest}"));
        }
        if is_fresh && !is_accepted {
            let acceptors = acceptors.count_ones();
            self.broken(now, Check::GrantHasMajority, || {
                format!("{tenure} was granted, stored by {acceptors} only")
            });
        }
    }
}

/// Whether more than half of the members are among these nodes.
const fn has_majority(nodes: u64, members: u64) -> bool {
    (nodes & members).count_ones() * 2 > members.count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_the_last_epoch_back_a_belief() {
        let tenure = Tenure::from_fence(5 << 10 | 1).expect("a tenure");
        let lease = Some((tenure, TrueTime(100)));
        let stored = Stored { promised: tenure.ballot(), lease };
        let (since, until) = (TrueTime(5), TrueTime(90));
        let claim = Claim { client: 1, tenure, since, until, is_backed: true };
        let mut checker = Checker::new(Checks::only(&[Check::BeliefIsBacked]), 3, 5, 1);
        for node in [0, 1, 3] {
            checker.stores(TrueTime(1), node, 0, stored);
        }
        checker.believes(TrueTime(10), 0, claim);
        checker.members_change(TrueTime(11), [0, 2, 3]);
        assert_eq!(checker.violations(), []);
        checker.members_change(TrueTime(12), [0, 2, 4]);
        assert_eq!(checker.violations().len(), 1);
    }

    #[test]
    fn a_majority_of_some_epoch_accepts_a_grant() {
        let tenure = Tenure::from_fence(5 << 10 | 1).expect("a tenure");
        let stored = Stored { promised: tenure.ballot(), lease: Some((tenure, TrueTime(100))) };
        for (nodes, expected) in [([0, 1], 0), ([3, 4], 0), ([0, 3], 1)] {
            let mut checker = Checker::new(Checks::only(&[Check::GrantHasMajority]), 3, 5, 1);
            for node in nodes {
                checker.stores(TrueTime(1), node, 0, stored);
            }
            checker.members_change(TrueTime(2), [2, 3, 4]);
            checker.granted(TrueTime(3), 0, tenure, true);
            assert_eq!(checker.violations().len(), expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_clean_restart_that_loses_or_shortens_a_lease_is_found() {
        let tenure = Tenure::from_fence(5 << 10 | 1).expect("a tenure");
        let stored = |until| Stored { promised: tenure.ballot(), lease: Some((tenure, until)) };
        let lost = Stored { promised: tenure.ballot(), lease: None };
        let (stop_at, start_at, until) = (TrueTime(10), TrueTime(20), TrueTime(100));
        for (restored, expected) in
            [(stored(TrueTime(110)), 0), (stored(until), 0), (stored(TrueTime(99)), 1), (lost, 1)]
        {
            let mut checker = Checker::new(Checks::ALL, 1, 1, 1);
            checker.stores(TrueTime(1), 0, 0, stored(until));
            checker.ended(stop_at, 0, false);
            checker.started(start_at, 0, &[restored]);
            assert_eq!(checker.violations().len(), expected, "{restored:?}");
        }
        let mut checker = Checker::new(Checks::ALL, 1, 1, 1);
        checker.stores(TrueTime(1), 0, 0, stored(until));
        checker.ended(stop_at, 0, true);
        checker.started(start_at, 0, &[lost]);
        assert_eq!(checker.violations(), [], "a crash forgets");
    }

    #[test]
    fn only_a_higher_granted_tenure_replaces_a_live_lease() {
        let tenure = |counter: u64| Tenure::from_fence(counter << 10 | 1).expect("a tenure");
        for (by, granted, expected) in [(7, None, 1), (7, Some(7), 0), (4, Some(4), 1)] {
            let checks = Checks::only(&[Check::ForeignLeaseKept]);
            let mut checker = Checker::new(checks, 3, 3, 1);
            let stored = |counter| Stored {
                promised: tenure(9).ballot(),
                lease: Some((tenure(counter), TrueTime(100))),
            };
            checker.stores(TrueTime(1), 1, 0, stored(5));
            if let Some(counter) = granted {
                checker.granted(TrueTime(2), 0, tenure(counter), true);
            }
            checker.stores(TrueTime(3), 1, 0, stored(by));
            assert_eq!(checker.violations().len(), expected, "by {by}, granted {granted:?}");
        }
    }
}
