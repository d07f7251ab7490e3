//! What is refused before a cell is asked, and the errors when no node answers.

use std::net::TcpListener;

use crate::cell::Cell;
use crate::support::{outcome, paxoslease};

/// Every command that talks to a cell, with all required arguments.
const COMMANDS: &[&[&str]] = &[
    &["lock", "x", "--", "true"],
    &["elect", "x"],
    &["elect", "--listen", "x"],
    &["acquire", "x"],
    &["renew", "x", "--fence", "1025"],
    &["release", "x", "--fence", "1025"],
    &["get", "x"],
    &["list"],
    &["watch"],
    &["status"],
];

fn with<'a>(command: &[&'a str], options: &[&'a str]) -> Vec<&'a str> {
    [&command[..1], options, &command[1..]].concat()
}

#[test]
fn bad_arguments_exit_2_and_say_what_to_write() {
    for (args, reason) in [
        (&["lock"][..], "<NAME>"),
        (&["lock", "x"], "<CMD>"),
        (&["lock", "--", "true"], "<CMD>"),
        (&["lock", "--tll", "5s", "x", "--", "true"], "'--tll'"),
        (&["lock", "x", "--tll", "5s", "--", "true"], "'--tll'"),
        (&["lock", "x", "--ttl", "15", "--", "true"], "15 has no unit; write 15s or 15ms"),
        (&["lock", "x", "--ttl", "soon", "--", "true"], "is no duration"),
        (&["lock", "x", "--ttl", "1ms", "--", "true"], "--ttl: "),
        (&["lock", "x", "--wait", "30", "--", "true"], "30 has no unit"),
        (&["lock", "x", "--wait", "3s", "--no-wait", "--", "true"], "cannot be used with"),
        (&["lock", "x", "-E", "256", "--", "true"], "256 is not in 0..=255"),
        (&["lock", "x", "--on-lost", "panic", "--", "true"], "term, kill, ignore"),
        (&["lock", "x", "--grace", "10s", "--", "true"], "at most 6.75s, or a longer --ttl"),
        (&["lock", "", "--", "true"], "name"),
        (&["elect"], "<NAME>"),
        (&["elect", "-l", "x", "--holder", "me"], "cannot be used with"),
        (&["elect", "x", "--grace", "10s"], "at most 6.75s"),
        (&["acquire"], "<NAME>"),
        (&["acquire", "x", "--ttl", "1s2"], "2 has no unit"),
        (&["acquire", ""], "name"),
        (&["renew", "x"], "--fence <N>"),
        (&["renew", "x", "--fence", "-1"], "--fence"),
        (&["release", "x"], "--fence <N>"),
        (&["release", "x", "--fence", "abc"], "invalid digit"),
        (&["get"], "<NAME>"),
        (&["get", "x", "y"], "unexpected argument 'y'"),
        (&["list", "a", "b"], "unexpected argument 'b'"),
        (&["watch", "--jsno"], "'--json'"),
        (&["status", "--endpoint", "nowhere:x"], "bad endpoint \"nowhere:x\""),
        (&["get", "x", "--endpoint", ""], "no endpoint"),
    ] {
        let (code, stdout, stderr) = outcome(paxoslease(args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(reason), "{args:?}: {stderr}");
    }
}

#[test]
fn names_and_holders_have_bounds() {
    let long = "n".repeat(513);
    for command in COMMANDS.iter().filter(|command| command.contains(&"x")) {
        let args: Vec<&str> =
            command.iter().map(|arg| if *arg == "x" { long.as_str() } else { arg }).collect();
        let (code, stdout, stderr) = outcome(paxoslease(&args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{command:?}: {stderr}");
        assert!(stderr.contains("512"), "{command:?}: {stderr}");
    }
    let (code, _, stderr) = outcome(paxoslease(&["acquire", "x", "--holder", &long]));
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: --holder: ") && stderr.contains("256"), "{stderr}");
}

#[test]
fn an_unreachable_endpoint_is_reported_with_advice() {
    let port = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound").port();
    let nowhere = format!("127.0.0.1:{port}");
    for command in COMMANDS {
        let args = with(command, &["--endpoint", &nowhere]);
        let (code, stdout, stderr) = outcome(paxoslease(&args));
        assert_eq!(code, 69, "{command:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{command:?}: {stderr}");
        let begin = format!("error: no node reachable at {nowhere}: ");
        assert!(stderr.starts_with(&begin) && stderr.contains("refused"), "{command:?}: {stderr}");
        assert!(stderr.contains("Try `paxoslease dev`, or --endpoint"), "{command:?}: {stderr}");
        assert!(stdout.is_empty() || command[0] == "status", "{command:?}: {stdout}");
    }
}

#[test]
fn a_wrong_port_is_recognised() {
    let cell = Cell::start();
    for what in ["http", "peers"] {
        let port = cell.port(1, what);
        for command in COMMANDS {
            let args = with(command, &["--endpoint", &port]);
            let (code, _, stderr) = outcome(paxoslease(&args));
            assert_eq!(code, 69, "{what}, {command:?}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{what}, {command:?}: {stderr}");
            let hint = if what == "http" {
                "not the client port of a PaxosLease node"
            } else {
                "a port for peers does so"
            };
            assert!(stderr.contains(hint), "{what}, {command:?}: {stderr}");
        }
    }
}

#[test]
fn a_dead_endpoint_beside_a_live_one_is_not_an_error() {
    let cell = Cell::start();
    let dead = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound");
    let endpoints = format!("--endpoint={dead},{}", cell.endpoints[1]);
    let (code, fence, stderr) = outcome(paxoslease(&["acquire", "x", &endpoints]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(fence.trim().parse::<u64>().is_ok(), "{fence}");
}

#[test]
fn the_manual_and_completions_hide_the_watchdog() {
    let (_, page, _) = outcome(paxoslease(&["man"]));
    let (_, script, _) = outcome(paxoslease(&["completions", "bash"]));
    let (_, help, _) = outcome(paxoslease(&["--help"]));
    for command in COMMANDS {
        for text in [&page, &script, &help] {
            assert!(text.contains(command[0]), "no {} in {text}", command[0]);
        }
    }
    // The text of `lock` mentions the process, but no list has the subcommand.
    assert!(!help.contains("watchdog") && !page.contains("\\-watchdog"), "{page}");
    assert!(page.contains("\\-renew"), "subcommands are listed in another form: {page}");
}
