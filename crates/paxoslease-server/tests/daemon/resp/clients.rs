//! Clients that were not written for this: `redis-cli`, redis-py and ioredis, each as it is
//! installed, against a cell of three. `cargo xtask test --all` installs them. The chaos harness
//! uses the `redis` crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::Cell;

/// Where libraries of other languages are installed, and where their scripts are.
fn folder(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match name {
        "scripts" => here.join("tests/daemon/resp/clients"),
        language => here.join("../../target/clients").join(language),
    }
}

/// Runs a program to its end, with the addresses of the cell in its environment.
fn run(cell: &Cell, command: &mut Command) -> Output {
    let ports: Vec<String> = (0..3).map(|node| cell[node].resp().port().to_string()).collect();
    let output = command.env("PORTS", ports.join(" ")).output();
    output.unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; `cargo xtask test --all` installs what is missing")
    })
}

fn must_succeed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}\n`cargo xtask test --all` installs what is missing",
        output.status
    );
}

/// What `redis-cli` prints for one command, as it prints for programs.
fn redis_cli(cell: &Cell, node: usize, args: &[&str]) -> String {
    let port = cell[node].resp().port().to_string();
    let mut command = Command::new("redis-cli");
    let output = run(cell, command.args(["-p", &port]).args(args));
    must_succeed(&output);
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

#[test]
fn redis_cli_is_the_debugger() {
    // With one shard there is one page.
    let cell = Cell::three_with(|config| config.node.shards = 1);
    assert_eq!(redis_cli(&cell, 0, &["PING"]), "PONG");
    let granted = redis_cli(&cell, 0, &["LEASE.ACQUIRE", "a", "60000", "HOLDER", "me"]);
    let lines: Vec<&str> = granted.lines().collect();
    let [fence, "60000", _waited] = lines[..] else { panic!("{granted}") };
    assert_eq!(redis_cli(&cell, 1, &["LEASE.ACQUIRE", "a", "60000"]), "", "which is nil");
    let seen = redis_cli(&cell, 2, &["-3", "LEASE.GET", "a"]);
    assert!(seen.starts_with(&format!("holder me\nfence {fence}\nttl_ms ")), "{seen}");
    assert!(redis_cli(&cell, 2, &["LEASE.LIST", "0"]).contains("\na\nme\n"));
    assert_eq!(redis_cli(&cell, 1, &["LEASE.RENEW", "a", fence, "30000"]), "30000");
    assert_eq!(redis_cli(&cell, 2, &["LEASE.RELEASE", "a", fence]), "1");
    assert!(redis_cli(&cell, 0, &["INFO"]).contains("server:paxoslease"));
    assert!(redis_cli(&cell, 0, &["CELL.STATUS"]).contains("max_lease_ms\n60000"));
    let wrong = redis_cli(&cell, 0, &["LEASE.RENEW", "a", fence, "30000"]);
    assert!(wrong.starts_with("NOTHELD "), "{wrong}");
}

/// A fence has this many digits.
const FENCE_DIGITS: usize = 19;

fn fence_in(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == FENCE_DIGITS)
}

#[test]
fn the_session_in_the_document_is_real() {
    let document = include_str!("../../../../../docs/resp.md");
    let session = document.split("```").nth(1).expect("a session");
    let (_, exchanges) = session.split_once("\n> ").expect("a command");
    let told = fence_in(session).expect("a fence");
    let cell = Cell::three();
    let mut real = None;
    for exchange in exchanges.split("\n> ") {
        let (command, reply) = exchange.split_once('\n').expect("a reply");
        let command = command.replace(told, real.as_deref().unwrap_or(told));
        let args: Vec<&str> = ["--no-raw"].into_iter().chain(command.split(' ')).collect();
        let shown = redis_cli(&cell, 0, &args);
        if real.is_none() {
            real = fence_in(&shown).map(str::to_owned);
        }
        let real = real.as_deref().expect("the first reply has a fence");
        assert_eq!(shown.replace(real, told), reply.trim_end(), "{command}");
    }
}

#[test]
fn redis_cli_shows_how_commands_are_used() {
    let cell = Cell::three();
    let docs = redis_cli(&cell, 0, &["COMMAND", "DOCS", "lease.renew"]);
    assert!(docs.contains("Prolongs your own tenure"), "{docs}");
    let count: usize = redis_cli(&cell, 0, &["COMMAND", "COUNT"]).parse().expect("a number");
    assert_eq!(redis_cli(&cell, 0, &["COMMAND", "LIST"]).lines().count(), count);
}

#[test]
fn redis_py_takes_leases() {
    let cell = Cell::three();
    let script = folder("scripts").join("redis_py.py");
    let mut command = Command::new("python3");
    must_succeed(&run(&cell, command.arg(script).env("PYTHONPATH", folder("python"))));
}

#[test]
fn ioredis_takes_leases() {
    let cell = Cell::three();
    let script = folder("scripts").join("ioredis.js");
    let mut command = Command::new("node");
    let modules = folder("node").join("node_modules");
    must_succeed(&run(&cell, command.arg(script).env("NODE_PATH", modules)));
}
