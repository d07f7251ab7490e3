//! Processes that are killed or paused.

use rustix::process::Signal;

use super::cell::Cell;

#[test]
fn a_cell_goes_on_when_a_node_is_killed() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    cell.kill(3);
    cell[2].acquire("b", "1s");
    // The wait is longer than the ttl: the lease was renewed without the third node.
    cell[2].is_refused("a 1s 2500ms", "is held by");
    cell[1].still_holds("a", fence);
}

#[test]
fn the_lease_of_a_killed_holder_moves_on_when_its_time_is_over() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "1s");
    cell[3].acquire("b", "2s");
    cell[2].say("acquire a 1s 20s");
    let last = cell[1].held("a");
    assert!(last.is_held(), "{last:?}");
    cell.kill(1);
    let next = cell[2].expect("acquired a");
    assert!(next.is_held() && next.number("fence") > last.number("fence"), "{next:?}");
    assert!(next.number("to") >= last.believed_until(), "{last:?}, then {next:?}");
    assert!(cell[3].held("b").is_held(), "the other lease is not affected");
}

#[test]
fn a_holder_that_was_paused_for_too_long_knows_that_it_lost() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "500ms");
    let first = cell[1].held("a");
    cell[1].signal(Signal::STOP);
    // It reads this first when it continues, before any message of another node.
    cell[1].say("held a");
    let second = cell[2].acquire("a", "2s");
    assert!(second.number("fence") > first.number("fence"), "{second:?}");
    cell[1].signal(Signal::CONT);
    let woken = cell[1].expect("held a");
    assert!(!woken.is_held() && woken.number("remaining_ms") == 0, "{woken:?}");
    let lost = cell[1].expect("lost a");
    assert!(!lost.is_held() && lost.number("fence") == first.number("fence"), "{lost:?}");
    assert!(cell[2].held("a").is_held(), "its late release does not harm the next tenure");
    cell.connect();
    cell[2].ask("release a", "released a");
    let third = cell[1].acquire("a", "500ms");
    assert!(third.number("fence") > second.number("fence"), "{third:?}");
}
