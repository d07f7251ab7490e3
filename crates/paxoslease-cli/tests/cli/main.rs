//! The real binary, alone and against real cells.

mod access;
mod bench;
mod dev;
mod elect;
mod hold;
mod look;
mod lose;
mod secure;
mod serve;
mod sim;
mod support;
mod terminal;

use std::path::Path;
use std::process::Command;

use support::{BINARY, Cell, outcome, scratch, utf8, without_variables};

/// Runs the commands of a transcript with `sh`, in a folder of their own. A line `cell` starts a
/// cell for the lines below it, and a shell function is kept for them. In the output, `!` marks
/// lines of stderr, and `<folder>`, `<cell>` and `<http 1>` stand for paths, names and addresses.
fn check(name: &str) {
    let folder = scratch(name);
    let mut cell: Option<Cell> = None;
    let mut functions = String::new();
    let transcripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/transcripts");
    paxoslease_rig::check_transcript(&transcripts.join(format!("{name}.txt")), |line| {
        if line == "cell" {
            cell = Some(Cell::start());
            return String::new();
        }
        if line.contains("() {") {
            functions += &format!("{line}\n");
            return String::new();
        }
        let mut command = Command::new("sh");
        without_variables(&mut command);
        command.arg("-c").arg(format!("{functions}{line}")).current_dir(&folder);
        let programs = Path::new(BINARY).parent().expect("a folder").display();
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").expect("a path")));
        if let Some(cell) = &cell {
            command.env("PAXOSLEASE_ENDPOINTS", cell.endpoints.join(","));
            for (variable, kind) in [("CLIENTS", "clients"), ("HTTP", "http"), ("PEERS", "peers")] {
                command.env(variable, cell.port(1, kind));
            }
        }
        let (code, stdout, stderr) = outcome(command);
        let errors = stderr.lines().filter(|line| !line.is_empty());
        let errors: String = errors.map(|line| format!("! {line}\n")).collect();
        let exit = if code == 0 { String::new() } else { format!("exit code {code}\n") };
        let output = format!("{stdout}{errors}{exit}").replace(utf8(&folder), "<folder>");
        cell.as_ref().map_or(output.clone(), |cell| cell.with_placeholders(output))
    });
}

#[test]
fn bad_usage_and_unreachable_cells_have_clear_errors() {
    check("usage");
}

#[test]
fn leases_are_acquired_renewed_released_and_shown() {
    check("leases");
}

#[test]
fn secrets_come_from_files_and_stay_there() {
    check("trust");
}

#[test]
fn certificates_and_tokens_are_made_once_and_privately() {
    check("certs");
}

#[test]
fn serve_refuses_settings_that_do_not_fit_together() {
    check("serve");
}

#[test]
fn simulations_are_repeatable_and_explained() {
    check("sim");
}

#[test]
fn bad_usage_of_bench_is_reported_before_anything_is_sent() {
    check("bench");
}
