//! `status`: why a lease cannot be acquired.

use serde_json::{Value, json};

use crate::cell::Cell;

#[test]
fn a_healthy_cell_is_reported_as_ready() {
    let cell = Cell::start();
    let text = cell.say(&["status"]);
    let name = cell.described["cell"].as_str().expect("text");
    assert!(text.starts_with(&format!("cell {name}: 3 members, leases of up to 20 s\n")), "{text}");
    for (id, endpoint) in (1..).zip(&cell.endpoints) {
        assert!(text.contains(&format!("{id}\t{endpoint}\tvotes\t")), "{text}");
    }
    assert!(text.ends_with("ready: 3 of 3 members vote, 2 needed\n"), "{text}");
    let all = cell.json(&["status", "--json"]);
    assert_eq!(all["ready"], true);
    for (id, node) in (1..).zip(all["nodes"].as_array().expect("a list")) {
        assert_eq!((&node["node"], &node["cell"]), (&json!(id), &json!(name)));
        assert_eq!(node["endpoint"], cell.endpoints[id - 1].as_str());
    }
}

#[test]
fn one_node_knows_of_the_others() {
    let cell = Cell::start();
    let text = cell.say(&["status", "--endpoint", &cell.endpoints[0]]);
    let peers = cell.port(3, "peers");
    assert!(text.contains(&format!("3\t{peers}\tvotes\t")), "{text}");
    assert!(text.ends_with("ready: 3 of 3 members vote, 2 needed\n"), "{text}");
}

#[test]
fn a_name_is_explained() {
    let cell = Cell::start();
    let text = cell.say(&["status", "x"]);
    assert!(text.ends_with("nobody holds \"x\": it can be acquired\n"), "{text}");
    let fence = cell.say(&["acquire", "x", "--holder", "bob"]);
    let fence = fence.trim();
    let waiter = cell.start_command(&["lock", "x", "--", "true"]);
    waiter.stderr.until(|line| line.starts_with("waiting: "));
    // The waiter has printed that it waits; a moment later the node knows too.
    let waits = format!("1 waits at node 1 for \"x\": held by \"bob\" (fence {fence})\n");
    let text = loop {
        let text = cell.say(&["status", "x"]);
        if text.contains(" waits at node ") {
            break text;
        }
    };
    assert!(text.contains(&waits), "{text}");
    let held = format!("\"x\" is held by \"bob\" (fence {fence}) for 1");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with(&held) && last.ends_with("; 1 waits for it"), "{text}");
    let all = cell.json(&["status", "x", "--json"]);
    assert_eq!((&all["name"], &all["lease"]["fence"]), (&json!("x"), &json!(fence)));
}

#[test]
fn without_a_majority_every_command_exits_69_and_says_why() {
    let cell = Cell::of_processes();
    let fence = cell.say(&["acquire", "y"]);
    let other_fence = cell.say(&["acquire", "z"]);
    cell.kill(2);
    cell.say(&["renew", "y", "--fence", fence.trim()]);
    cell.kill(3);
    let begin = "error: nothing can be acquired now: 1 of 3 members vote, 2 needed; node 2: down";
    let (text, stderr) = loop {
        let (code, stdout, stderr) = cell.run(&["status", "x"]);
        // It takes a moment until node 1 knows.
        if code != 0 {
            assert_eq!(code, 69, "{stderr}");
        }
        if stderr.starts_with(begin) {
            break (stdout, stderr);
        }
    };
    for endpoint in &cell.endpoints[1..] {
        assert!(text.contains(&format!("?\t{endpoint}\tno answer\t")), "{text}");
        assert!(text.contains(&format!("\n{endpoint} does not answer: ")), "{text}");
    }
    assert!(stderr.contains("; node 3: down"), "{stderr}");
    assert!(text.contains(&format!("\n3\t{}\tdown\t", cell.port(3, "peers"))), "{text}");
    let (code, stdout, _) = cell.run(&["status", "--json"]);
    let all: Value = serde_json::from_str(&stdout).expect("a line of JSON");
    assert_eq!((code, &all["ready"]), (69, &json!(false)));
    assert!(all["nodes"][1]["error"].is_string(), "{all}");
    let commands = [
        &["acquire", "x"][..],
        &["acquire", "--no-wait", "x"],
        &["lock", "x", "--", "echo", "no"],
        &["elect", "x"],
        &["renew", "y", "--fence", fence.trim()],
        &["release", "z", "--fence", other_fence.trim()],
        &["get", "x"],
    ];
    // In parallel: each command waits for its request timeout.
    let started = commands.map(|args| (args, cell.start_command(args)));
    for (args, process) in started {
        assert_eq!(process.stdout.rest(), [""; 0], "{args:?}");
        let lines = process.stderr.rest();
        assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{args:?}: {lines:?}");
        assert_eq!(process.end(), Some(69), "{args:?}: {lines:?}");
    }
}
