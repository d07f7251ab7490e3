//! Disks that are full, damaged, or used by another process.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use super::cell::{Cell, MAX_LEASE_SECS, MEMBERS};

/// Makes a node's disk full, by a limit of zero on its files, or gives it room again. A small file
/// system to fill would need privileges.
fn set_full(cell: &Cell, id: u16, is_full: bool) {
    let room = getrlimit(Resource::Fsize);
    let limit = if is_full { Rlimit { current: Some(0), maximum: room.maximum } } else { room };
    prlimit(Some(cell[id].pid()), Resource::Fsize, limit).expect("our own child");
}

fn knows_its_disk_is_full(cell: &mut Cell, id: u16) {
    cell[id].until("aware of its disk", |status| status["disk_problem"].is_string());
}

#[test]
fn a_full_disk_stops_only_what_must_be_recorded() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "1s").number("fence");

    // One full disk: its node accepts no lease longer than it recorded (R2), the majority does.
    set_full(&cell, 1, true);
    cell[2].acquire("b", "2s");
    knows_its_disk_is_full(&mut cell, 1);

    // All disks full: no longer lease is granted, and held leases are renewed.
    set_full(&cell, 2, true);
    set_full(&cell, 3, true);
    cell[2].is_refused("c 3s 1s", "no majority");
    for id in MEMBERS {
        knows_its_disk_is_full(&mut cell, id);
    }
    cell[1].still_holds("a", fence);

    for id in MEMBERS {
        set_full(&cell, id, false);
    }
    cell[2].acquire("c", "3s");
    for id in MEMBERS {
        cell[id].until("without a problem", |status| status["disk_problem"].is_null());
    }
    cell[1].still_holds("a", fence);
}

/// A node that cannot write a snapshot starts as after a crash.
#[test]
fn a_stop_on_a_full_disk_costs_a_quarantine_and_no_more() {
    let mut cell = Cell::founded();
    cell[2].acquire("a", "2s");
    cell.until_accepted(1);
    set_full(&cell, 1, true);
    cell.quit(1);
    cell.start(1, &[]);
    assert!(cell[1].quarantine_ms() > 0);
    assert!(cell[2].held("a").is_held());
}

#[test]
fn a_damaged_record_is_refused_until_the_operator_resets_it() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    cell.kill(3);
    let record = cell.data_dir(3).join("record");
    let mut bytes = fs::read(&record).expect("it was written");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&record, &bytes).expect("room");
    for _ in 0..2 {
        let path = record.display().to_string();
        cell.is_refused(3, &[], &[&path, "cannot be used", "--reset-stable-record"]);
        assert_eq!(fs::read(&record).expect("still there"), bytes, "it was not changed");
    }
    reset(&mut cell);
    // A renewal gives the lease to the third member again. Before that, it needs the second.
    cell[3].until("the lease is healed", |status| status["leases"] == 1);
    vote_without_the_second(&mut cell);
    cell[1].still_holds("a", fence);
}

#[test]
fn a_folder_whose_record_is_lost_does_not_look_unused() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "1s");
    cell.kill(3);
    fs::remove_file(cell.data_dir(3).join("record")).expect("it was written");
    let parts = ["is gone, although one was written", "--reset-stable-record"];
    cell.is_refused(3, &["--new-cell"], &parts);
    reset(&mut cell);
    vote_without_the_second(&mut cell);
}

/// R6: the third node starts without its record, waits for max_lease, and votes then.
fn reset(cell: &mut Cell) {
    cell.start(3, &["--reset-stable-record"]);
    assert!(cell[3].quarantine_ms() > MAX_LEASE_SECS * 1000 / 2);
    cell[3].until("voting again", |status| status["quarantine_remaining_ms"] == 0);
    cell.connect();
}

fn vote_without_the_second(cell: &mut Cell) {
    cell.kill(2);
    cell[1].acquire("b", "1s");
}

#[test]
fn two_processes_never_share_a_folder() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "2s");
    let other = format!("listen.peers = {:?}", cell.address(100));
    let folder = cell.data_dir(1);
    let pid = cell[1].pid().as_raw_nonzero().to_string();
    let parts = [&*folder.display().to_string(), "in use by process", &pid];
    cell.is_refused(1, &[&other], &parts);
    assert!(cell[1].held("a").is_held());
}
