//! The schedules, one function each. Times are in milliseconds. A message takes 10 ms.
//!
//! The comments say what the paper's algorithm does, and which rule protects ours.

use super::{ScriptedWorld, ms};
use crate::algorithm::Algorithm;
use crate::network::{Action, Pattern};

pub(super) fn uncontended<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10).acquire(1, 1, 600);
    s.at(200).renew(1, 1, 600);
    s.at(400).release(1, 1);
    s.at(450);
}

pub(super) fn holder_dies<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10).acquire(1, 1, 400);
    s.at(100).acquire_patiently(2, 2, 400, 2000);
    s.at(200).crash(1);
    s.at(1000);
}

/// Footnote 1 and section 1 of the paper: the naive vote blocks until the votes expire.
pub(super) fn split_vote<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    for client in [1, 2, 3] {
        s.acquire_patiently(client, client as u16, 400, 450);
    }
    // Until a client holds the lease, and until the other nodes know.
    s.world.run_while(ms(440), |world| world.counts().acquires == 0);
    s.world.run_for(ms(4));
}

/// The paper's node 2 forgets its promise to node 3, accepts a lower ballot of node 1, and then
/// lets the old Propose of node 3 overwrite that lease (A3 refuses it). When the overwriting lease
/// expires, nodes 2 and 3 are free, but client 2 still holds its lease.
pub(super) fn late_propose_after_restart<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    let away = s.lose(Pattern::ANY.from(3).to(1));
    let late = s.hold(Pattern::kind("Propose").from(3).to(2));
    s.acquire(1, 3, 300);
    s.at(60).crash(2);
    s.at(70).start(2);
    s.at(1100).lift(away).acquire(2, 1, 900);
    s.at(1200).note(2, "the late Propose").lift(late);
    s.at(1520).acquire(3, 3, 900);
    s.at(1700);
}

/// The paper's node 2 accepts a Propose of node 3 whose Prepare it never saw, and does not count it
/// as a promise (A3 does). An older Propose then overwrites it with an earlier end.
pub(super) fn promise_not_raised<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    let away = s.lose(Pattern::ANY.from(1).to(3));
    let late = s.hold(Pattern::kind("Propose").from(1).to(2));
    s.acquire(1, 1, 200);
    s.at(300).lift(away);
    let unprepared = s.lose(Pattern::kind("Prepare").from(3).to(2));
    let unproposed = s.lose(Pattern::kind("Propose").from(3).to(1));
    s.acquire(2, 3, 900);
    s.at(400).note(2, "the older Propose").lift(late);
    s.at(620).lift(unprepared).lift(unproposed).acquire(3, 1, 500);
    s.at(800);
}

/// The paper's acceptors set their timers to an earlier end (A4 keeps the later one). The paper's
/// proposer does too, but a client that was told 900 ms counts 900 ms.
pub(super) fn shorter_renewal<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10).acquire(1, 1, 900);
    s.at(150).renew(1, 1, 100);
    s.at(400).acquire(2, 2, 500);
    s.at(600);
}

/// The paper counts responses (P3 counts acceptors): its own, and another acceptor's twice, are
/// three.
pub(super) fn duplicate_replies<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    s.world.filter(Pattern::ANY.from(2).to(1), Action::Repeat(2));
    for node in [3, 4, 5] {
        s.lose(Pattern::ANY.from(1).to(node));
    }
    s.acquire(1, 1, 900);
    s.at(200).acquire(2, 4, 900);
    s.at(400);
}

/// The paper's proposer sets its timer at every Promise beyond the majority (P3: once per round),
/// although the acceptors' timers have been running since the first one.
pub(super) fn late_third_reply<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    let third = s.hold(Pattern::kind("Promise").from(3).to(1));
    let accepts = s.hold(Pattern::kind("Accept").from(2).to(1));
    s.lose(Pattern::kind("Propose").from(1).to(3));
    s.acquire_patiently(1, 1, 500, 1500);
    s.at(450);
    s.lose(Pattern::kind("Propose").from(1).to(2));
    s.lift(third);
    s.at(460).lift(accepts);
    s.at(560).acquire(2, 3, 300);
    s.at(700);
}

/// The paper's proposer clears its state at a release, and a third Accept sets it again (P6: the
/// round is void). It then tells the next client that it holds the lease.
pub(super) fn stale_release<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    let third = s.hold(Pattern::kind("Accept").from(3).to(1));
    s.acquire(1, 1, 900);
    s.at(100).release(1, 1);
    s.at(130).acquire(2, 2, 900);
    s.at(220).note(1, "the late Accept").lift(third);
    s.at(260).acquire(3, 1, 900);
    s.at(400);
}

/// Node 2 has forgotten client 1's lease. A snapshot written now would not contain it, and another
/// client could win nodes 2 and 3 (R4: no snapshot from a quarantined node).
pub(super) fn snapshot_in_quarantine<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    s.lose(Pattern::ANY.from(1).to(3));
    s.acquire(1, 1, 900);
    s.at(100).crash(2);
    s.at(120).start(2);
    s.at(200).stop(2);
    s.at(220).start(2);
    s.at(300).acquire(2, 3, 300);
    s.at(650);
}

/// The paper's acceptors forget their promises (R1 keeps a ceiling on disk), and node 1 has a lower
/// counter than node 3 had.
pub(super) fn fence_after_restart<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    for turn in 0..2 {
        s.at(10 + turn * 100).acquire(1, 3, 500);
        s.at(70 + turn * 100).release(1, 3);
    }
    s.at(220);
    for node in [1, 2, 3] {
        s.crash(node);
    }
    s.at(230);
    for node in [1, 2, 3] {
        s.start(node);
    }
    s.at(1300).acquire(2, 1, 500);
    s.at(1500);
}

/// Both algorithms count a round only while its timer runs (P1, `Proposer::OnTimeout`).
pub(super) fn late_majority<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10);
    s.lose(Pattern::ANY.from(1).to(3));
    let late = s.hold(Pattern::kind("Accept").from(2).to(1));
    s.acquire(1, 1, 300);
    s.at(360).acquire(2, 3, 500);
    s.at(420).note(1, "the late Accept").lift(late);
    s.at(500);
}

/// A tenure that has ended cannot come back (A4 renews only a live lease).
pub(super) fn renew_after_lapse<A: Algorithm>(s: &mut ScriptedWorld<A>) {
    s.at(10).acquire(1, 1, 200);
    s.at(300).acquire(2, 2, 200);
    s.at(400).release(2, 2);
    s.at(450).renew(1, 1, 500);
    s.at(550);
}
