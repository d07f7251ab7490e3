//! Clients of every kind. Each draws its actions from a seed, and logs its beliefs.
//!
//! A client is a process that starts another one, the worker, again and again: workers crash on
//! purpose. `paxoslease lock` runs a third one, the command, which believes that it may run. All
//! three are the binary `chaos-client`, each with its [`Part`]. The module `worker` draws the
//! actions. The protocols are `resp` and `http`, both with the clock rule of `bare`, and `library`
//! and `lock`.

mod bare;
mod http;
mod library;
mod lock;
mod resp;
mod worker;

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;

use crate::log::{EXTENSION, Kind};
use worker::Worker;

/// The options of a client, which the harness passes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientOptions {
    pub kind: Kind,
    /// The id in its events, unique in a run.
    pub id: String,
    pub endpoints: Vec<String>,
    /// The names that it acquires.
    pub names: Vec<String>,
    pub behaviour: Behaviour,
    /// The only node that it uses, if there is one.
    pub through: Option<u16>,
    pub seed: u64,
    /// At least 200.
    pub ttl_max_ms: u64,
    /// The drift of the cell, for an HTTP node that does not report it.
    pub drift_ppm: u32,
    /// The log. The logs of its workers and the socket of the store are beside it.
    pub log: PathBuf,
    /// The binary `paxoslease`.
    pub paxoslease: PathBuf,
    pub part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Behaviour {
    /// Contends for names, and leaves in every possible way.
    Contend,
    /// Waits for one name with others that never leave: a released name must be granted at once.
    Wait,
    /// Acquires an uncontended name again and again: a healthy node grants it, so a time without a
    /// grant is not due to another holder.
    Probe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Part {
    /// Starts workers.
    Client,
    /// Acquires and holds.
    Worker,
    /// Runs under `paxoslease lock`.
    Command {
        /// The number of the request that the command belongs to.
        attempt: u64,
        /// How long it works.
        hold_ms: u64,
        /// Whether it ignores SIGTERM.
        stubborn: bool,
    },
}

/// Runs the part that the options name. No failure of the cell is an error.
pub fn run(options: &ClientOptions) -> Result<()> {
    ensure!(
        paxoslease_clock::HAS_RATE || std::env::var_os("PAXOSLEASE_CLOCK_PPM").is_none(),
        "this chaos-client counts by the machine's clock alone; build it with `--features \
         paxoslease-cli/chaos`, together with paxoslease-cli"
    );
    match options.part {
        Part::Client => attend(options),
        Part::Worker => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            work(options)
        }
        Part::Command { attempt, hold_ms, stubborn } => {
            lock::command(options, attempt, hold_ms, stubborn)
        }
    }
}

fn work(options: &ClientOptions) -> Result<()> {
    let mut worker = Worker::begin(options)?;
    match options.kind {
        Kind::Library => library::work(&mut worker),
        Kind::Resp => bare::work(&mut worker, resp::Resp::new(options)),
        Kind::Http => bare::work(&mut worker, http::Http::new(options)),
        Kind::Lock => lock::work(&mut worker),
    }
}

/// Starts workers until it gets a signal, or the harness is gone. The system kills a worker with
/// this process.
fn attend(options: &ClientOptions) -> Result<()> {
    end_on_request()?;
    for number in 1_u64.. {
        let mut worker = options.part_of(Part::Worker, number).command()?;
        let status = worker.status().context("cannot start a worker")?;
        // Workers kill themselves on purpose. Any other end is an error.
        if status.signal() != Some(SIGKILL) {
            bail!("worker {} of {} ended: {status}", number, options.id);
        }
    }
    Ok(())
}

/// Ends at a signal, and with standard input, which the harness holds.
fn end_on_request() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let wait = move || {
        if signals.forever().next().is_some() {
            exit(0);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    let wait = || {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        exit(0);
    };
    thread::Builder::new().name("input".to_owned()).spawn(wait)?;
    Ok(())
}

impl ClientOptions {
    /// The options of another part, with its own log and seed.
    fn part_of(&self, part: Part, number: u64) -> Self {
        let stem = self.log.file_stem().unwrap_or_default().to_string_lossy();
        let (log, id) = match part {
            Part::Client => (self.log.clone(), self.id.clone()),
            Part::Worker => (format!("{stem}-{number}").into(), format!("{}.{number}", self.id)),
            // The command logs its belief with the id of its worker.
            Part::Command { .. } => (format!("{stem}-command-{number}").into(), self.id.clone()),
        };
        let log = self.log.with_file_name(log).with_extension(EXTENSION);
        let seed = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { part, id, log, seed, ..self.clone() }
    }

    /// The only argument of `chaos-client`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(self.to_json()).stdin(std::process::Stdio::null());
        Ok(command)
    }
}
