//! Nobody waits through more than a few hand-overs for each contender, however soon the others ask
//! again.

use super::*;

/// Lets workers on all hosts from this one on share a name fairly, where messages take that long.
#[track_caller]
fn share(setup: &Setup, micros: (u64, u64), workers: Workers, from: usize) {
    let delay = (Duration::from_micros(micros.0), Duration::from_micros(micros.1));
    let mut cell = cell_in(setup, Conditions { delay, ..Conditions::PERFECT });
    let hosts: Vec<usize> = (from..setup.hosts()).collect();
    let sharing = cell.share(&hosts, workers, SECOND * 30);
    cell.assert_sound();
    assert_fair(&sharing, (setup.seed, micros));
}

const NEAR: (u64, u64) = (200, 500);

#[test]
fn clients_that_drop_their_lease_and_ask_again_at_once_take_turns() {
    for seed in [51, 52] {
        share(&Setup::new(seed, 3), NEAR, Workers::GREEDY, 0);
    }
}

#[test]
fn clients_that_hold_for_longer_take_turns() {
    let workers = Workers { held: Duration::from_millis(50), ..Workers::GREEDY };
    for seed in [53, 54] {
        share(&Setup::new(seed, 3), NEAR, workers, 0);
    }
}

#[test]
fn clients_further_apart_take_turns() {
    for seed in [55, 56] {
        share(&Setup::new(seed, 3), (4000, 6000), Workers::GREEDY, 0);
    }
}

#[test]
fn clients_that_wait_for_the_confirmation_and_ask_again_at_once_take_turns() {
    let workers = Workers { confirms: true, ..Workers::GREEDY };
    for seed in [57, 58] {
        share(&Setup::new(seed, 3), NEAR, workers, 0);
    }
}

#[test]
fn clients_that_pause_before_they_ask_again_take_turns() {
    let workers = Workers { pause: Duration::from_millis(2), ..Workers::GREEDY };
    share(&Setup::new(59, 3), NEAR, workers, 0);
}

#[test]
fn twenty_clients_on_each_node_take_turns() {
    let crowd = Workers { per_host: 20, ..Workers::GREEDY };
    share(&Setup::new(60, 3), NEAR, crowd, 0);
    share(&Setup::new(61, 3), (4000, 6000), crowd, 0);
}

#[test]
fn clients_of_five_members_take_turns() {
    share(&Setup::new(62, 5), NEAR, Workers::GREEDY, 0);
}

#[test]
fn clients_of_nodes_that_only_propose_take_turns() {
    let setup = Setup { proposers: 3, ..Setup::new(63, 3) };
    share(&setup, NEAR, Workers::GREEDY, 3);
}

#[test]
fn clients_of_members_and_of_nodes_that_only_propose_take_turns() {
    let setup = Setup { proposers: 2, ..Setup::new(64, 3) };
    share(&setup, NEAR, Workers::GREEDY, 0);
}

#[test]
fn clients_of_one_member_and_of_nodes_that_only_propose_take_turns() {
    let seeds = 65..75;
    for (seed, micros) in
        seeds.flat_map(|seed| [NEAR, (4000, 6000), (25_000, 30_000)].map(|d| (seed, d)))
    {
        let setup = Setup { proposers: 2, ..Setup::new(seed, 1) };
        share(&setup, micros, Workers::GREEDY, 0);
    }
}
