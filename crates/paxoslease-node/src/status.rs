//! How the statuses of the shards of a node become one.

use paxoslease_holder::Status;

/// How many names with waiters a status shows.
pub(crate) const QUEUED_NAMES_MAX: usize = 20;

/// The status of one shard. The board fills in the fields that describe the node and its cell.
pub(crate) type ShardStatus = Status;

/// Joins the statuses of two shards of one node.
pub(crate) fn join(mut one: ShardStatus, other: ShardStatus) -> ShardStatus {
    one.quarantine_remaining = one.quarantine_remaining.max(other.quarantine_remaining);
    one.ready &= other.ready;
    one.longest_turn = one.longest_turn.max(other.longest_turn);
    one.leases += other.leases;
    one.acceptor_bytes += other.acceptor_bytes;
    one.waiters += other.waiters;
    one.waiting.extend(other.waiting);
    one.waiting.sort_by_key(|queued| std::cmp::Reverse(queued.waiters));
    one.waiting.truncate(QUEUED_NAMES_MAX);
    one.rates.acquires += other.rates.acquires;
    one.rates.renewals += other.rates.renewals;
    one.rates.releases += other.rates.releases;
    one.guards += other.guards;
    one.rounds_in_flight += other.rounds_in_flight;
    one.ballots_remaining_ratio = one.ballots_remaining_ratio.min(other.ballots_remaining_ratio);
    one.ballot_problem = one.ballot_problem.or(other.ballot_problem);
    for theirs in other.peers {
        match one.peers.iter_mut().find(|ours| ours.node == theirs.node) {
            Some(ours) => {
                ours.up &= theirs.up;
                ours.rtt = ours.rtt.max(theirs.rtt);
                ours.quarantine_remaining =
                    ours.quarantine_remaining.max(theirs.quarantine_remaining);
                ours.problem = ours.problem.take().or(theirs.problem);
            }
            None => one.peers.push(theirs),
        }
    }
    one
}
