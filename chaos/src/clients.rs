//! Clients of every kind: each draws what it does from a seed, and logs what it believes.
//!
//! A client is a process that starts another, the worker, again and again: workers crash, which is
//! a part of what they do, and the client does not. `paxoslease lock` runs a third: the command,
//! whose belief is that it may run. All three are the binary `chaos-client`, in a [`Part`] each.
//! What a worker does is drawn in `scene`; the ways to a cell are `resp` and `http`, both
//! under the hand-made clock rule of `bare`, then `library` and `lock`.

mod bare;
mod http;
mod library;
mod lock;
mod resp;
mod scene;

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;

use crate::log::{EXTENSION, Kind};
use scene::Scene;

/// What a client is started with.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "chaos-client", about = "A client that the chaos harness starts")]
pub struct Options {
    /// How it speaks to the cell
    #[arg(long)]
    pub kind: Kind,

    /// What its events call it; used once in a run
    #[arg(long)]
    pub id: String,

    /// Where nodes listen for this kind of client
    #[arg(long, value_delimiter = ',', required = true)]
    pub endpoints: Vec<String>,

    /// What it asks for
    #[arg(long, value_delimiter = ',', required = true)]
    pub names: Vec<String>,

    /// What it is there for
    #[arg(long, value_enum, default_value_t = Manner::Contend)]
    pub manner: Manner,

    /// The node its only endpoint belongs to, if it has no other
    #[arg(long, value_name = "NODE")]
    pub through: Option<u16>,

    /// Draws what it does
    #[arg(long)]
    pub seed: u64,

    /// The longest lease it asks for, in milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(200..))]
    pub ttl_max_ms: u64,

    /// How far clocks of the cell may be off; HTTP does not tell
    #[arg(long, default_value_t = 1000)]
    pub drift_ppm: u32,

    /// How old a reading of a clock of the cell may be, in microseconds; HTTP does not tell
    #[arg(long, default_value_t = 1000)]
    pub granularity_us: u32,

    /// The log; its workers' are beside it, and the fenced store's socket
    #[arg(long)]
    pub log: PathBuf,

    /// The binary `paxoslease`
    #[arg(long)]
    pub paxoslease: PathBuf,

    /// Which of its processes this is
    #[arg(long, hide = true, value_enum, default_value_t = Part::Client)]
    pub part: Part,

    /// The command's: the answer to which request it runs by
    #[arg(long, hide = true, default_value_t = 0)]
    pub attempt: u64,

    /// The command's: how long it works
    #[arg(long, hide = true, default_value_t = 0)]
    pub hold_ms: u64,

    /// The command's: whether it has to be killed when it should go
    #[arg(long, hide = true)]
    pub stubborn: bool,
}

/// What a client is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Manner {
    /// To want what others want, and to leave in every way there is.
    Contend,
    /// To hand one name on among those who all wait for it and never leave: what is given back
    /// must be the next one's at once.
    Wait,
    /// To take a name that nobody else wants, for a moment, over and over: a node that works grants
    /// it, so the times without a grant are the cell's and not those of patient holders.
    Probe,
}

/// Which process of a client this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// The one that stays.
    Client,
    /// The one that asks and holds.
    Worker,
    /// The one that runs under `paxoslease lock`.
    Command,
}

/// Plays the part that the options name, which ends with the process.
///
/// # Errors
/// When this machine does not do what it must, or an answer makes no sense. No failure of the cell
/// is an error.
pub fn run(options: &Options) -> Result<()> {
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
        Part::Command => lock::command(options),
    }
}

fn work(options: &Options) -> Result<()> {
    let mut scene = Scene::begin(options)?;
    match options.kind {
        Kind::Library => library::work(&mut scene),
        Kind::Resp => bare::work(&mut scene, resp::Resp::new(options)),
        Kind::Http => bare::work(&mut scene, http::Http::new(options)),
        Kind::Lock => lock::work(&mut scene),
    }
}

/// Starts workers until it is asked to stop, or whoever started it is gone.
fn attend(options: &Options) -> Result<()> {
    let worker: Arc<Mutex<Option<Child>>> = Arc::default();
    end_on_request(&worker)?;
    for number in 1_u64.. {
        let part = options.part_of(Part::Worker, number);
        let mut slot = worker.lock().unwrap_or_else(PoisonError::into_inner);
        let child = part.command()?.spawn().context("cannot start a worker")?;
        let id = rustix::process::Pid::from_child(&child);
        *slot = Some(child);
        drop(slot);
        // Its id is its own until note is taken of its end, which happens under the lock.
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitid(rustix::process::WaitId::Pid(id), ended)
        {}
        let mut slot = worker.lock().unwrap_or_else(PoisonError::into_inner);
        let status = slot.take().context("a worker went without a word")?.wait()?;
        drop(slot);
        // Crashing is what workers do by themselves; they do not fail.
        if status.signal() != Some(SIGKILL) {
            bail!("worker {} of {} ended: {status}", number, options.id);
        }
    }
    Ok(())
}

/// When asked to, or when standard input ends, so with whoever started this.
fn end_on_request(worker: &Arc<Mutex<Option<Child>>>) -> Result<()> {
    let end = |worker: &Mutex<Option<Child>>| {
        let mut slot = worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = &mut *slot {
            let _gone = worker.kill();
        }
        // Nobody starts another: the lock goes with the process.
        exit(0);
    };
    let of_signals = Arc::clone(worker);
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let wait = move || {
        if signals.forever().next().is_some() {
            end(&of_signals);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    let of_input = Arc::clone(worker);
    let wait = move || {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        end(&of_input);
    };
    thread::Builder::new().name("input".to_owned()).spawn(wait)?;
    Ok(())
}

impl Options {
    /// The options of another part, with a log and a seed of its own.
    fn part_of(&self, part: Part, number: u64) -> Self {
        let stem = self.log.file_stem().unwrap_or_default().to_string_lossy();
        let (log, id) = match part {
            Part::Client => (self.log.clone(), self.id.clone()),
            Part::Worker => (format!("{stem}-{number}").into(), format!("{}.{number}", self.id)),
            // The command believes in its worker's name.
            Part::Command => (format!("{stem}-command-{number}").into(), self.id.clone()),
        };
        let log = self.log.with_file_name(log).with_extension(EXTENSION);
        let seed = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { part, id, log, seed, ..self.clone() }
    }

    /// This binary, with these options.
    fn arguments(&self) -> Vec<std::ffi::OsString> {
        let part = clap::ValueEnum::to_possible_value(&self.part).expect("none is hidden");
        let manner = clap::ValueEnum::to_possible_value(&self.manner).expect("none is hidden");
        let mut arguments: Vec<std::ffi::OsString> = Vec::new();
        let texts = [
            ("--kind", self.kind.to_string()),
            ("--id", self.id.clone()),
            ("--endpoints", self.endpoints.join(",")),
            ("--names", self.names.join(",")),
            ("--manner", manner.get_name().to_owned()),
            ("--seed", self.seed.to_string()),
            ("--ttl-max-ms", self.ttl_max_ms.to_string()),
            ("--drift-ppm", self.drift_ppm.to_string()),
            ("--granularity-us", self.granularity_us.to_string()),
            ("--part", part.get_name().to_owned()),
            ("--attempt", self.attempt.to_string()),
            ("--hold-ms", self.hold_ms.to_string()),
        ];
        for (option, text) in texts {
            arguments.extend([option.into(), text.into()]);
        }
        arguments.extend(["--log".into(), self.log.clone().into()]);
        arguments.extend(["--paxoslease".into(), self.paxoslease.clone().into()]);
        if let Some(node) = self.through {
            arguments.extend(["--through".into(), node.to_string().into()]);
        }
        arguments.extend(self.stubborn.then(|| "--stubborn".into()));
        arguments
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(self.arguments()).stdin(std::process::Stdio::null());
        Ok(command)
    }
}
