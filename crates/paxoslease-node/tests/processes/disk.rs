//! Disks that are full, damaged, or somebody else's already.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use super::cell::{Cell, MAX_LEASE_SECS, MEMBERS};

/// From now on this node's disk is full: no file may have a first byte. Works without privileges,
/// where a small file system to fill would want some.
fn fill_disk(cell: &Cell, id: u16) {
    let full = Rlimit { current: Some(0), maximum: getrlimit(Resource::Fsize).maximum };
    prlimit(Some(cell[id].pid()), Resource::Fsize, full).expect("our own child");
}

fn empty_disk(cell: &Cell, id: u16) {
    let room = getrlimit(Resource::Fsize);
    prlimit(Some(cell[id].pid()), Resource::Fsize, room).expect("our own child");
}

#[test]
fn a_full_disk_stops_only_what_must_be_recorded() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "1s").number("fence");

    // One: it cannot accept anything longer than it recorded (R2), the majority can.
    fill_disk(&cell, 1);
    cell[2].acquire("b", "2s");
    cell[1].until("aware of its disk", |status| status["disk_problem"].is_string());

    // All: nothing longer is granted, and what is held goes on.
    fill_disk(&cell, 2);
    fill_disk(&cell, 3);
    let refused = cell[2].ask("acquire c 3s 1s", "refused c");
    assert!(refused.contains("no majority"), "{refused:?}");
    for id in MEMBERS {
        cell[id].until("aware of its disk", |status| status["disk_problem"].is_string());
    }
    let held = cell[1].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");

    for id in MEMBERS {
        empty_disk(&cell, id);
    }
    cell[2].acquire("c", "3s");
    for id in MEMBERS {
        cell[id].until("glad to have room", |status| status["disk_problem"].is_null());
    }
    assert!(!cell[1].has_said("lost a"));
}

/// Whoever cannot write a snapshot comes back as after a crash.
#[test]
fn a_stop_on_a_full_disk_costs_a_quarantine_and_no_more() {
    let mut cell = Cell::founded();
    cell[2].acquire("a", "2s");
    fill_disk(&cell, 1);
    cell.quit(1);
    cell.start(1, &[]);
    assert!(cell[1].quarantine_ms() > 0);
    assert!(cell[2].held("a").is_held());
}

#[test]
fn a_damaged_record_is_refused_until_somebody_decides() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    cell.kill(3);
    let record = cell.data_dir(3).join("record");
    let mut bytes = fs::read(&record).expect("it was written");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&record, &bytes).expect("room");
    for _ in 0..2 {
        let refused = cell.refused(3, &[]);
        let path = record.display().to_string();
        for part in [&path, "cannot be used", "--reset-stable-record"] {
            assert!(refused.contains(part), "no {part:?} in {refused}");
        }
        assert_eq!(fs::read(&record).expect("still there"), bytes, "nothing was touched");
    }
    reset(&mut cell);
    // A lease comes back to a member that lost it with the renewals, and only then can do without
    // another one.
    cell[3].until("the lease is healed", |status| status["leases"] == 1);
    vote_without_the_second(&mut cell);
    let held = cell[1].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
}

#[test]
fn a_record_that_is_gone_is_told_from_a_folder_never_used() {
    let mut cell = Cell::founded();
    cell[1].acquire("a", "1s");
    cell.kill(3);
    fs::remove_file(cell.data_dir(3).join("record")).expect("it was written");
    let refused = cell.refused(3, &["--new-cell"]);
    for part in ["is gone, although one was written", "--reset-stable-record"] {
        assert!(refused.contains(part), "no {part:?} in {refused}");
    }
    reset(&mut cell);
    vote_without_the_second(&mut cell);
}

/// R6: the third node begins anew, waits for the longest lease there can be, and then votes.
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
    let (other, folder) = (cell.address(100), cell.data_dir(1));
    let refused = cell.refused(1, &["--listen", &other]);
    for part in [
        &folder.display().to_string(),
        "in use by process",
        &cell[1].pid().as_raw_nonzero().to_string(),
    ] {
        assert!(refused.contains(part), "no {part:?} in {refused}");
    }
    assert!(cell[1].held("a").is_held());
}
