//! Guards: renewed with few commands over one connection, through any node that is left.

use std::time::Duration;

use paxoslease_client::{AskError, Client, LeaseGuard, LeaseInfo, LeaseState};
use paxoslease_node::block_on;

use super::{begun, client};
use crate::harness::{Cell, until};

const RENEWED: &str = "paxoslease_commands_total{command=\"lease.renew\"}";

/// The lease of a name. A request waits for a majority for one attempt, and a busy machine may take
/// longer than that.
fn seen(client: &Client, name: &str) -> Option<LeaseInfo> {
    let mut answer = None;
    until("a majority answers", || match client.get_blocking(name) {
        Err(AskError::NoQuorum(_)) => false,
        answered => {
            answer = answered.expect("answered");
            true
        }
    });
    answer
}

#[test]
fn leases_outlive_the_node_their_client_talks_to() {
    let mut cell = Cell::three();
    let client = client(&cell, 0);
    let ttl = Duration::from_secs(10);
    let asked: Vec<_> =
        (0..10).map(|n| begun(client.try_acquire(&format!("n/{n}"), ttl))).collect();
    let leases: Vec<LeaseGuard> =
        asked.into_iter().map(|asked| block_on(asked).expect("granted")).collect();
    assert_eq!(client.status_blocking().expect("answered").node, 1);
    // Without node 1 both others are needed, and a grant shows only that one of them has it.
    for node in [1, 2] {
        cell[node].wait_for_metric("paxoslease_leases", 10.0);
    }
    cell.0.remove(0).server.shutdown();
    let renewals: Vec<u64> = leases.iter().map(LeaseGuard::renewals).collect();
    for (mut lease, renewals) in leases.into_iter().zip(renewals) {
        while lease.renewals() == renewals && lease.changed_blocking() != LeaseState::Lost {}
        assert!(lease.is_held(), "{lease:?}");
        let seen = seen(&client, lease.name()).expect("held");
        assert_eq!(seen.fence, lease.fence(), "the same tenure all along");
        lease.release_blocking().expect("confirmed");
    }
    assert_ne!(client.status_blocking().expect("answered").node, 1);
}

#[test]
fn a_thousand_leases_are_renewed_over_one_connection() {
    let cell = Cell::three();
    let client = client(&cell, 0);
    let ttl = Duration::from_secs(6);
    let asked: Vec<_> =
        (0..1000).map(|n| begun(client.try_acquire(&format!("n/{n}"), ttl))).collect();
    let mut leases: Vec<LeaseGuard> =
        asked.into_iter().map(|asked| block_on(asked).expect("granted")).collect();
    for lease in &mut leases {
        assert_eq!(lease.changed_blocking(), LeaseState::Held, "renewed");
        assert!(lease.renewals() > 0, "{lease:?}");
    }
    cell[0].wait_for_metric(RENEWED, 1000.0);
    let commands = cell[0].metric(RENEWED);
    let renewals: u64 = leases.iter().map(LeaseGuard::renewals).sum();
    // Renewals under way are not counted by the guards yet.
    assert!(commands <= (renewals + 1000) as f64, "{commands} commands, {renewals} renewals");
    assert_eq!(cell[0].metric("paxoslease_connections"), 1.0);
    assert_eq!(cell[1].metric(RENEWED) + cell[2].metric(RENEWED), 0.0);
}
