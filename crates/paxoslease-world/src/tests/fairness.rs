//! No client waits through more than a few hand-overs for each contender, however soon the others
//! ask again.

use super::*;

/// The delays of messages, in microseconds.
const NEAR: (u64, u64) = (200, 500);
const APART: (u64, u64) = (4000, 6000);
const FAR: (u64, u64) = (25_000, 30_000);

/// Lets workers on all hosts from this one on share a name fairly.
#[track_caller]
fn share_from(from: usize, setup: &Setup, micros: (u64, u64), workers: Workers) {
    let delay = (Duration::from_micros(micros.0), Duration::from_micros(micros.1));
    let mut cell = cell_in(setup, Conditions { delay, ..Conditions::PERFECT });
    let hosts: Vec<usize> = (from..setup.hosts()).collect();
    let sharing = cell.share(&hosts, workers, SECOND * 30);
    cell.assert_sound();
    assert_fair(&sharing, (setup.seed, micros));
}

#[track_caller]
fn share(setup: &Setup, micros: (u64, u64), workers: Workers) {
    share_from(0, setup, micros, workers);
}

fn with_proposers(seed: u64, members: u16, proposers: u16) -> Setup {
    Setup { proposers, ..Setup::new(seed, members) }
}

#[test]
fn clients_that_ask_again_at_once_take_turns() {
    for (seed, micros) in [(51, NEAR), (52, NEAR), (55, APART), (56, APART)] {
        share(&Setup::new(seed, 3), micros, Workers::GREEDY);
    }
    share(&Setup::new(62, 5), NEAR, Workers::GREEDY);
}

#[test]
fn clients_with_other_habits_take_turns() {
    let slow = Workers { held: Duration::from_millis(50), ..Workers::GREEDY };
    let confirming = Workers { confirms: true, ..Workers::GREEDY };
    let pausing = Workers { pause: Duration::from_millis(2), ..Workers::GREEDY };
    for (seed, workers) in
        [(53, slow), (54, slow), (57, confirming), (58, confirming), (59, pausing)]
    {
        share(&Setup::new(seed, 3), NEAR, workers);
    }
}

#[test]
fn twenty_clients_on_each_node_take_turns() {
    let crowd = Workers { per_host: 20, ..Workers::GREEDY };
    share(&Setup::new(60, 3), NEAR, crowd);
    share(&Setup::new(61, 3), APART, crowd);
}

#[test]
fn clients_of_proposer_only_nodes_take_turns() {
    share_from(3, &with_proposers(63, 3, 3), NEAR, Workers::GREEDY);
}

#[test]
fn clients_of_members_and_proposer_only_nodes_take_turns() {
    share(&with_proposers(64, 3, 2), NEAR, Workers::GREEDY);
    for seed in 65..75 {
        for micros in [NEAR, APART, FAR] {
            share(&with_proposers(seed, 1, 2), micros, Workers::GREEDY);
        }
    }
}
