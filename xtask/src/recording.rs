//! Records the quick start of the README: `docs/quickstart.svg`.
//!
//! Real terminals with real shells, typed into as a person would. What the picture shows was all
//! printed by these programs, at these times; only what would not fit is left out, with a mark.
//! Nothing is checked here beyond that the story happened: the tests do that. Linux only, for its
//! `script`, and about half a minute.

mod picture;
mod stage;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::invocation::{cargo, repository_root};
use crate::recording::stage::{Line, Pane, Stage};

/// Between what happens and what is typed next, for those who watch.
const BEAT: Duration = Duration::from_millis(1400);

/// What `dev` takes when it is not told, and others for when that is taken.
const PORTS: [u16; 3] = [7400, 17400, 27400];

const CELL: Pane = Pane(0);
const ALICE: Pane = Pane(1);
const BOB: Pane = Pane(2);
const WATCH: Pane = Pane(3);
const DESK: Pane = Pane(4);

/// Plays the story with `binary`, or with the one it builds, and writes the picture.
pub(crate) fn run(binary: Option<PathBuf>) -> anyhow::Result<()> {
    let binary = match binary {
        Some(binary) => std::path::absolute(binary)?,
        None => build()?,
    };
    ensure!(binary.ends_with("paxoslease"), "{}: must be named paxoslease", binary.display());
    ensure!(binary.is_file(), "{}: no such file", binary.display());
    let folder = binary.parent().context("a binary is in a folder")?;
    let Some(port) = PORTS.into_iter().find(|&port| is_free(port)) else {
        bail!("ports {PORTS:?} are all taken; stop a cell that runs on one of them");
    };
    let endpoints = [0, 10, 20].map(|node| format!("127.0.0.1:{}", port + node)).join(",");
    let mut stage = Stage::open(5, folder, &[("PAXOSLEASE_ENDPOINTS", &endpoints)])?;
    play(&mut stage, port)?;
    let [cell, alice, bob, watch, desk] = <[Vec<Line>; 5]>::try_from(stage.close())
        .ok()
        .context("as many recordings as terminals")?;
    let picture = picture::draw(
        ("the cell", &without_advice(cell)),
        &[("terminal 1", &alice), ("terminal 2", &bob), ("terminal 3", &watch)],
        &[("terminal 4", &desk)],
        &format!("PAXOSLEASE_ENDPOINTS={endpoints}"),
    );
    let path = repository_root().join("docs/quickstart.svg");
    std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote docs/quickstart.svg; look at it before you commit it");
    Ok(())
}

/// Alice holds a lease and bob waits for it. The node it was taken through dies, and alice still
/// holds it, under the same fence; alice dies, and it is bob's turn, under a greater one.
fn play(stage: &mut Stage, port: u16) -> anyhow::Result<()> {
    let option = if port == PORTS[0] { String::new() } else { format!(" --port {port}") };
    stage.type_line(CELL, &format!("paxoslease dev --processes{option}"))?;
    let node = stage.line(CELL, |line| line.trim_start().starts_with("node 1 "))?;
    stage.line(CELL, |line| line.starts_with("Ctrl-C "))?;
    stage.pause(BEAT)?;

    stage.type_line(WATCH, "paxoslease watch demo")?;
    stage.line(WATCH, |line| line.starts_with("watching "))?;
    stage.pause(BEAT)?;

    let work = "sh -c 'echo fence $PAXOSLEASE_FENCE; sleep 60'";
    stage.type_line(ALICE, r"paxoslease lock demo --ttl 3s --holder alice -- \")?;
    stage.type_line(ALICE, work)?;
    stage.line(ALICE, |line| line.starts_with("fence "))?;
    let alice = stage.process(ALICE)?;
    stage.pause(BEAT)?;

    stage.type_line(BOB, r"paxoslease lock demo --ttl 3s --holder bob -- \")?;
    stage.type_line(BOB, work)?;
    stage.line(BOB, |line| line.starts_with("waiting: "))?;
    stage.pause(BEAT)?;

    stage.type_line(DESK, "paxoslease get demo")?;
    stage.line(DESK, |line| line.starts_with("demo "))?;
    stage.pause(BEAT)?;
    stage.type_line(DESK, &format!("kill -9 {}   # node 1", process_of(&node)?))?;
    stage.line(CELL, |line| line.starts_with("node 1 ended"))?;
    stage.pause(BEAT)?;
    stage.type_line(DESK, "paxoslease status")?;
    stage.line(DESK, |line| line.starts_with("ready: "))?;
    stage.pause(BEAT)?;
    stage.type_line(DESK, "paxoslease get demo")?;
    stage.line(DESK, |line| line.starts_with("demo "))?;
    stage.pause(BEAT)?;

    stage.type_line(DESK, &format!("kill -9 {alice}   # alice"))?;
    stage.line(BOB, |line| line.starts_with("fence "))?;
    stage.pause(BEAT)?;
    stage.type_line(DESK, "paxoslease get demo")?;
    stage.line(DESK, |line| line.starts_with("demo "))?;
    stage.pause(BEAT)
}

/// The number with which `line` ends: a process to kill.
fn process_of(line: &str) -> anyhow::Result<u32> {
    let word = line.split_whitespace().next_back().unwrap_or_default();
    word.parse().with_context(|| format!("`{line}` does not end with a process"))
}

/// What `dev` proposes to try is what the other terminals do.
fn without_advice(lines: Vec<Line>) -> Vec<Line> {
    let is_at = |start: &str| lines.iter().position(|line| line.text.starts_with(start));
    let (Some(first), Some(end)) = (is_at("What to try"), is_at("Ctrl-C stops")) else {
        return lines;
    };
    let mark = Line { text: "…".to_owned(), ..lines[first] };
    let mut kept = lines;
    kept.splice(first..end, [mark]);
    kept
}

fn build() -> anyhow::Result<PathBuf> {
    cargo(["build", "--release", "-p", "paxoslease-cli"]).run()?;
    let this = std::env::current_exe().context("where is this program?")?;
    let target = this.ancestors().nth(2).context("cargo builds into a folder of a folder")?;
    Ok(target.join("release/paxoslease"))
}

/// Whether a cell of three could listen from `port` on.
fn is_free(port: u16) -> bool {
    let ports = [0, 10, 20].into_iter().flat_map(|node| [0, 1, 2].map(|kind| port + node + kind));
    let listeners: Result<Vec<_>, _> =
        ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))).collect();
    listeners.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_dev_prints_only_its_advice_is_left_out() {
        let text = "Cell x\n\nWhat to try:\n\n  watch\n\nCtrl-C stops the cell.\nnode 1 ended";
        let lines = text.lines().map(|text| Line { at: Duration::ZERO, text: text.to_owned() });
        let kept = without_advice(lines.collect());
        let kept: Vec<&str> = kept.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(kept, ["Cell x", "", "…", "Ctrl-C stops the cell.", "node 1 ended"]);
    }

    #[test]
    fn the_process_of_a_node_is_the_last_word_of_its_line() {
        assert_eq!(process_of("  node 1  clients 127.0.0.1:7400  process 42").ok(), Some(42));
        assert!(process_of("  node 1  clients 127.0.0.1:7400").is_err());
    }
}
