//! Nodes that start again: after a crash with the record only (R3), after a clean stop with a
//! snapshot (R4).

use super::cell::{Cell, MEMBERS};
use super::shell::now;

/// A node that takes leases and has no vote, so that members can restart while it holds them.
const PROPOSER: u16 = 9;

fn founded_with_proposer() -> Cell {
    let mut cell = Cell::founded();
    cell.start(PROPOSER, &[]);
    cell.connect();
    cell
}

#[test]
fn after_a_crash_of_all_nodes_the_longest_lease_is_waited_for() {
    let mut cell = Cell::founded();
    cell[3].acquire("b", "300ms");
    cell[1].acquire("a", "1s");
    cell.until_accepted(2);
    let last = cell[1].held("a");
    for id in MEMBERS {
        cell.kill(id);
    }
    let restarted_at = now();
    for id in MEMBERS {
        cell.start(id, &[]);
        let quarantine_ms = cell[id].quarantine_ms();
        assert!((1..1100).contains(&quarantine_ms), "{quarantine_ms}");
    }
    let next = cell[2].acquire("a", "1s");
    assert!(next.number("fence") > last.number("fence"), "{last:?}, then {next:?}");
    assert!(next.number("to") >= restarted_at + 1_000_000_000, "{restarted_at}, then {next:?}");
}

#[test]
fn a_rolling_restart_loses_no_lease_and_keeps_no_quarantine() {
    let mut cell = founded_with_proposer();
    let fence = cell[PROPOSER].acquire("a", "2s").number("fence");
    for id in MEMBERS {
        cell.quit(id);
        cell.start(id, &[]);
        assert_eq!(cell[id].quarantine_ms(), 0);
        cell.connect();
    }
    cell[PROPOSER].still_holds("a", fence);
    cell[1].is_refused("a 2s", "is held by");
}

#[test]
fn nodes_that_crash_in_turn_are_quarantined_and_healed() {
    let mut cell = founded_with_proposer();
    let fence = cell[PROPOSER].acquire("a", "1500ms").number("fence");
    cell.until_accepted(1);
    for id in MEMBERS {
        cell.kill(id);
        cell.start(id, &[]);
        let quarantine_ms = cell[id].quarantine_ms();
        assert!((1..1600).contains(&quarantine_ms), "{quarantine_ms}");
        // P5: it has forgotten the lease, and the holder's next renewal gives it back.
        cell[id].until("healed", |status| {
            status["quarantine_remaining_ms"] == 0 && status["leases"] == 1
        });
        cell.connect();
    }
    cell[PROPOSER].still_holds("a", fence);
}

#[test]
fn a_snapshot_is_used_once() {
    let mut cell = founded_with_proposer();
    cell[PROPOSER].acquire("a", "2s");
    cell.until_accepted(1);
    cell.quit(2);
    cell.start(2, &[]);
    cell.kill(2);
    cell.start(2, &[]);
    assert!(cell[2].quarantine_ms() > 0);
}

/// R4: a snapshot would end the quarantine too early.
#[test]
fn a_node_stopped_in_quarantine_is_quarantined_again() {
    let mut cell = founded_with_proposer();
    cell[PROPOSER].acquire("a", "3s");
    cell.until_accepted(1);
    cell.kill(2);
    for _ in 0..2 {
        cell.start(2, &[]);
        assert!(cell[2].quarantine_ms() > 1000);
        cell.quit(2);
    }
}

#[test]
fn a_node_that_stops_releases_its_leases() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "4s");
    cell[1].say("quit");
    let lost = cell[1].expect("lost a");
    assert!(!lost.is_held(), "{lost:?}");
    cell[1].expect("stopped");
    // Without waiting.
    cell[2].ask("acquire a 4s", "acquired a");
}
