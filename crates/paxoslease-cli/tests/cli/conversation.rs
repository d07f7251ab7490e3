//! Runs the transcripts in `transcripts/`: lines for `sh`, in a folder of their own, and lines that
//! control processes in the background.
//!
//! ```text
//! cell --processes           a cell of `dev` with these options, for all lines below
//! kill cell, kill node 2     as a power loss would
//! a & paxoslease lock ..     a process in the background with the label `a`; the file a.log has
//!                            its stderr
//! line of a                  its next line on stdout; `error of a`: on stderr
//! line of a with TEXT        waits for a line with this text
//! p = line of a              the id of another process, with the label `p`
//! send TERM a                a signal to a process
//! end of a                   the rest of its output, and its exit code
//! wait for p, is p running   another process
//! page fences                the snippets of docs/fences.md as files in `fences/`: each must be
//!                            played by a line below
//! not played SNIPPET: why    the only other way
//! ```
//! A shell function, in one line or up to a line `}`, is kept for all lines below it. `$PORT` is a
//! free port, as are the next two, and so on in steps of ten, for five nodes. `$REPOSITORY` is the
//! folder of the repository.
//!
//! In the output, `!` marks lines of stderr, and `<folder>`, `<cell>`, `<http 1>`, `<port 2>` and
//! `<a>` stand for paths, names, addresses and process ids. The process of a cell has the label
//! `cell`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use paxoslease_rig::check_transcript;
use rustix::process::{Signal, kill_process};

use crate::snippets::snippets;
use crate::support::{
    BINARY, Cell, MAX_LEASE, Process, WatchedProcess, free_port, outcome, scratch, utf8,
    without_variables,
};

/// Checks the transcript of this name.
pub(crate) fn check(name: &str) {
    let transcripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/transcripts");
    let mut conversation = Conversation {
        folder: scratch(name),
        port: free_port(5),
        cell: None,
        functions: String::new(),
        is_defining: false,
        processes: BTreeMap::new(),
        others: BTreeMap::new(),
        unplayed: Vec::new(),
    };
    check_transcript(&transcripts.join(format!("{name}.txt")), |line| {
        conversation.unplayed.retain(|snippet| !line.contains(snippet));
        let output = conversation.run(line);
        conversation.with_placeholders(output)
    });
    let unplayed = &conversation.unplayed;
    assert!(unplayed.is_empty(), "{name}.txt plays no {unplayed:#?}");
}

struct Conversation {
    folder: PathBuf,
    port: u16,
    cell: Option<Cell>,
    functions: String,
    /// Whether the next line belongs to a shell function.
    is_defining: bool,
    processes: BTreeMap<String, Process>,
    others: BTreeMap<String, WatchedProcess>,
    /// Snippets of pages that no line has mentioned yet.
    unplayed: Vec<String>,
}

impl Conversation {
    fn run(&mut self, line: &str) -> String {
        if self.is_defining || line.contains("() {") {
            self.is_defining = line != "}" && !line.ends_with("; }");
            self.functions += &format!("{line}\n");
            return String::new();
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["cell", ref options @ ..] => {
                let options = [&["--max-lease", MAX_LEASE], options].concat();
                self.cell = Some(Cell::with(&options));
            }
            ["kill", "cell"] => self.cell().process.signal(Signal::KILL),
            ["kill", "node", id] => self.cell().kill(id.parse().expect("a number")),
            [label, "&", ..] => {
                let (_, script) = line.split_once(" & ").expect("a command");
                // Signals go to the program, not to the shell.
                let exec = if script.starts_with("paxoslease") { "exec " } else { "" };
                let log = File::create(self.folder.join(format!("{label}.log"))).expect("a file");
                let command = self.shell(&format!("{exec}{script}"));
                let process = Process::run_with_log(command, Some(log));
                self.processes.insert(label.to_owned(), process);
            }
            ["line", "of", label] => return self.process(label).stdout.line(),
            ["error", "of", label] => return format!("! {}", self.process(label).stderr.line()),
            [stream, "of", label, "with", ..] => {
                let (_, text) = line.split_once(" with ").expect("a text");
                let process = self.process(label);
                let lines = if stream == "line" { &process.stdout } else { &process.stderr };
                lines.until(|line| contains(line, text));
            }
            [label, "=", "line", "of", process] => {
                let other = WatchedProcess::new(&self.process(process).stdout.line());
                self.others.insert(label.to_owned(), other);
            }
            ["send", signal, label] => match self.others.get(label) {
                Some(other) => kill_process(other.id, parsed(signal)).expect("it runs"),
                None => self.process(label).signal(parsed(signal)),
            },
            ["end", "of", label] => return ended(self.process(label)),
            ["wait", "for", label] => self.others[label].wait(),
            ["page", page] => self.write_snippets(page),
            ["not", "played", ..] => {}
            ["is", label, "running"] => return (!self.others[label].has_ended()).to_string(),
            _ => {
                let (code, stdout, stderr) = outcome(self.shell(line));
                return shown(&stdout, &stderr, Some(code).filter(|code| *code != 0));
            }
        }
        String::new()
    }

    /// With the addresses of the cell instead of those that the page made up.
    fn write_snippets(&mut self, page: &str) {
        let text = std::fs::read_to_string(repository().join(format!("docs/{page}.md")));
        std::fs::create_dir(self.folder.join(page)).expect("can be made");
        for (name, mut snippet) in snippets(&text.expect("a page")) {
            if let Some(cell) = &self.cell {
                for (index, address) in cell.endpoints.iter().enumerate() {
                    snippet = snippet.replace(&format!("10.0.0.{}:7400", index + 1), address);
                }
                snippet = snippet.replace("localhost:7402", &cell.port(1, "http"));
            }
            let path = format!("{page}/{name}");
            std::fs::write(self.folder.join(&path), snippet).expect("can be written");
            self.unplayed.push(path);
        }
    }

    fn cell(&self) -> &Cell {
        self.cell.as_ref().expect("there is a cell")
    }

    fn process(&self, label: &str) -> &Process {
        if label == "cell" {
            return &self.cell().process;
        }
        self.processes.get(label).unwrap_or_else(|| panic!("no process {label}"))
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        without_variables(&mut command);
        command.arg("-c").arg(format!("{}{script}", self.functions)).current_dir(&self.folder);
        let programs = Path::new(BINARY).parent().expect("a folder").display();
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").expect("a path")));
        command.env("PORT", self.port.to_string()).env("REPOSITORY", repository());
        command.env("PYTHONPATH", repository().join("target/clients/python"));
        if let Some(cell) = &self.cell {
            command.env("PAXOSLEASE_ENDPOINTS", cell.endpoints.join(","));
            for (variable, kind) in [("CLIENTS", "clients"), ("HTTP", "http"), ("PEERS", "peers")] {
                command.env(variable, cell.port(1, kind));
            }
        }
        command
    }

    fn with_placeholders(&self, output: String) -> String {
        let mut text = output.replace(utf8(&self.folder), "<folder>");
        for (label, process) in &self.processes {
            for (before, after) in [(":", "\""), ("process ", "."), ("\"pid\":", "}")] {
                let id = format!("{before}{}{after}", process.id());
                text = text.replace(&id, &format!("{before}<{label}>{after}"));
            }
        }
        for offset in (0..5).flat_map(|node| [0, 1, 2].map(|port| 10 * node + port)) {
            let address = format!("127.0.0.1:{}", self.port + offset);
            text = text.replace(&address, &format!("<port {offset}>"));
        }
        match &self.cell {
            Some(cell) => cell.with_placeholders(text),
            None => text,
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the line has all parts of the text, which `[..]` separates, in this order.
fn contains(line: &str, text: &str) -> bool {
    text.split("[..]").try_fold(line, |rest, part| Some(rest.split_once(part)?.1)).is_some()
}

fn parsed(signal: &str) -> Signal {
    let number: nix::sys::signal::Signal = format!("SIG{signal}").parse().expect(signal);
    Signal::from_named_raw(number as i32).expect(signal)
}

fn ended(process: &Process) -> String {
    let (stdout, stderr) = (process.stdout.rest().join("\n"), process.stderr.rest().join("\n"));
    shown(&stdout, &stderr, process.end())
}

fn shown(stdout: &str, stderr: &str, code: Option<i32>) -> String {
    let errors = stderr.lines().filter(|line| !line.is_empty());
    let errors = errors.map(|line| format!("! {line}"));
    let code = code.map(|code| format!("exit code {code}"));
    let lines: Vec<String> = stdout.lines().map(str::to_owned).chain(errors).chain(code).collect();
    lines.join("\n")
}
