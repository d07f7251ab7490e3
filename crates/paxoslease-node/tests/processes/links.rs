//! Connections that die silently, connections of strangers, and nodes that do not agree.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use super::cell::Cell;
use super::relay::Relay;
use super::shell::peer;

/// A cell whose third node reaches the first through a relay only: of two members, the one with the
/// higher id dials.
fn relayed() -> (Cell, Relay) {
    let mut cell = Cell::new();
    let relay = Relay::to(cell.address(1));
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &["--new-cell", &format!("peers.1 = {:?}", relay.address)]);
    cell.connect();
    (cell, relay)
}

#[test]
fn a_silent_connection_is_closed_and_replaced() {
    let cut: fn(&Relay) = Relay::cut;
    let ways = [("in both directions", cut, true), ("in one direction", Relay::cut_back, false)];
    for (what, cut, is_first_deaf) in ways {
        println!("{what}");
        let (mut cell, relay) = relayed();
        let fence = cell[3].acquire("a", "2s").number("fence");
        cut(&relay);
        cell[3].until("aware of the silence", |status| peer(status, 1)["up"] == false);
        let third = cell[1].until("disconnected", |status| peer(status, 3)["up"] == false);
        let problem = &peer(&third, 3)["problem"];
        assert!(!is_first_deaf || problem == "it fell silent", "{problem}");
        // The first and the third node each still have a majority with the second.
        cell[1].acquire("b", "1s");
        cell[3].acquire("c", "1s");
        relay.mend();
        cell.connect();
        cell[3].still_holds("a", fence);
    }
}

/// Accepting, dialling and writing files fail for a while; open connections stay in use.
#[test]
fn nodes_out_of_file_descriptors_keep_working_and_recover() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    let plenty = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(3), maximum: plenty.maximum };
    for id in [1, 3] {
        prlimit(Some(cell[id].pid()), Resource::Nofile, none).expect("our own child");
    }
    cell.kill(2);
    cell.start(2, &[]);
    // The second dials the first, the third dials the second.
    cell[1].until("without the second", |status| peer(status, 2)["up"] == false);
    let why = |status: &Value| peer(status, 2)["problem"].to_string();
    cell[3].until("out of descriptors", |status| why(status).contains("open files"));
    cell[3].is_refused("a 1s 2500ms", "is held by");
    for id in [1, 3] {
        prlimit(Some(cell[id].pid()), Resource::Nofile, plenty).expect("our own child");
    }
    cell.connect();
    cell[1].still_holds("a", fence);
}

#[test]
fn many_connections_without_a_greeting_keep_no_peer_out() {
    let mut cell = Cell::founded();
    let address = cell.address(1);
    cell.kill(3);
    let crowd: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
    cell.start(3, &[]);
    cell.connect();
    cell[3].acquire("a", "1s");
    drop(crowd);
}

/// Starts the third node with another setting. Both sides must say what differs.
fn differs(setting: &str, first_says: &str, third_says: &str) {
    let mut cell = Cell::new();
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &["--new-cell", setting]);
    let says = |node: u16, text: String| {
        move |status: &Value| {
            let problem = peer(status, node)["problem"].clone();
            problem.as_str().is_some_and(|problem| problem.contains(&text))
        }
    };
    cell[1].until("aware of the difference", says(3, first_says.to_owned()));
    cell[3].until("aware of the difference", says(1, third_says.to_owned()));
    cell[1].until_up(&[2]);
    cell[2].acquire("a", "1s");
    assert_eq!(cell[3].status()["ready"], false);
    cell.quit(3);
    cell.start(3, &["--new-cell"]);
    cell.connect();
}

#[test]
fn a_peer_of_another_cell_is_refused_and_both_say_why() {
    differs(
        "cell = 'other'",
        "cell \"processes\" here, \"other\" there",
        "cell \"other\" here, \"processes\" there",
    );
}

#[test]
fn a_peer_with_another_max_lease_is_refused_and_both_say_why() {
    differs("max_lease = '3s'", "max_lease 4s here, 3s there", "max_lease 3s here, 4s there");
}
