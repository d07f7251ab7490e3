//! Nodes that come back: after a crash with the record only (R3), after a clean stop with a
//! snapshot (R4).

use super::cell::{Cell, MEMBERS};
use super::shell::now;

/// A node that takes leases and has no vote, so that members can restart under it.
const PROPOSER: u16 = 9;

fn founded_with_proposer() -> Cell {
    let mut cell = Cell::founded();
    cell.start(PROPOSER, &[]);
    cell.connect();
    cell
}

#[test]
fn after_all_died_nothing_is_granted_until_the_longest_lease_is_over() {
    let mut cell = Cell::founded();
    cell[3].acquire("b", "300ms");
    cell[1].acquire("a", "1s");
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
    let held = cell[PROPOSER].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
    assert!(!cell[PROPOSER].has_said("lost a"));
    let refused = cell[1].ask("acquire a 2s", "refused a");
    assert!(refused.contains("is held by"), "{refused:?}");
}

#[test]
fn nodes_that_crash_in_turn_are_quarantined_and_healed() {
    let mut cell = founded_with_proposer();
    let fence = cell[PROPOSER].acquire("a", "1500ms").number("fence");
    for id in MEMBERS {
        cell.kill(id);
        cell.start(id, &[]);
        let quarantine_ms = cell[id].quarantine_ms();
        assert!((1..1600).contains(&quarantine_ms), "{quarantine_ms}");
        // P5: it has forgotten what it accepted, and the holder's next renewal brings it back.
        cell[id].until("healed", |status| {
            status["quarantine_remaining_ms"] == 0 && status["leases"] == 1
        });
        cell.connect();
    }
    let held = cell[PROPOSER].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
    assert!(!cell[PROPOSER].has_said("lost a"));
}

#[test]
fn a_snapshot_is_used_once() {
    let mut cell = founded_with_proposer();
    cell[PROPOSER].acquire("a", "2s");
    cell.quit(2);
    cell.start(2, &[]);
    cell.kill(2);
    cell.start(2, &[]);
    assert!(cell[2].quarantine_ms() > 0);
}

/// R4: its promise to be silent would be forgotten with the snapshot.
#[test]
fn a_node_stopped_in_quarantine_is_quarantined_again() {
    let mut cell = founded_with_proposer();
    cell[PROPOSER].acquire("a", "3s");
    cell.kill(2);
    for _ in 0..2 {
        cell.start(2, &[]);
        assert!(cell[2].quarantine_ms() > 1000);
        cell.quit(2);
    }
}

#[test]
fn a_node_that_leaves_gives_its_leases_back() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "4s");
    cell[1].say("quit");
    let lost = cell[1].expect("lost a");
    assert!(!lost.is_held(), "{lost:?}");
    cell[1].expect("stopped");
    // Without waiting.
    cell[2].ask("acquire a 4s", "acquired a");
}
