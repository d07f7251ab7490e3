//! The binary `paxoslease`: parses the command line, runs the command, and turns its result into an
//! exit code.
//!
//! 0: success. 1: something outside failed, such as a disk. 2: bad usage (clap's own code) or a bad
//! configuration. 3: a violation in a simulation. 69: no cell could serve. 75: a lease was lost.
//! 77: access denied. `lock` and `elect` exit with the code of their command.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the command line of PaxosLease runs on Linux only: elsewhere `lock` could not end its command \
     when the lease is lost. The crate `paxoslease` also builds on macOS."
);

mod args;
mod bench;
mod client;
mod dev;
mod log;
mod man;
mod output;
mod serve;
mod signals;
mod sim;
mod trust;

use std::process::ExitCode;

use paxoslease_node::{LoadError, StartError as NodeError, TlsError};
use paxoslease_server::{ConfigError, StartError};
use signal_hook::consts::SIGINT;

use crate::args::{Args, Command};

/// The result of a command, when nothing outside failed.
enum Verdict {
    Well,
    InvariantBroke,
    /// The exit code of the command that was run.
    Code(u8),
}

fn main() -> ExitCode {
    match run(Args::of_process()) {
        Ok(Verdict::Well) => ExitCode::SUCCESS,
        Ok(Verdict::InvariantBroke) => ExitCode::from(3),
        Ok(Verdict::Code(code)) => by_itself_or_interrupted(code),
        Err(error) => {
            let (text, code) = explain(&error);
            if text.is_empty() {
                return by_itself_or_interrupted(code);
            }
            output::to_stderr(&format!("error: {text}\n"));
            ExitCode::from(code)
        }
    }
}

/// A shell leaves its loop on Ctrl-C only if SIGINT ended the command in it.
fn by_itself_or_interrupted(code: u8) -> ExitCode {
    if i32::from(code) == 128 + SIGINT {
        let _goes_on = signal_hook::low_level::emulate_default_handler(SIGINT);
    }
    ExitCode::from(code)
}

/// One line and the exit code. The library's messages are complete; our own need their causes.
fn explain(error: &anyhow::Error) -> (String, u8) {
    let start = error.downcast_ref();
    let is_configuration = matches!(start, Some(StartError::Config(_)))
        || matches!(start, Some(StartError::Node(NodeError::Tls(_))))
        || error.is::<LoadError>()
        || error.is::<ConfigError>()
        || error.is::<TlsError>();
    if let Some(failure) = error.downcast_ref::<client::Failure>() {
        (failure.to_string(), failure.code)
    } else if let Some(code) = bench::exit_code(error) {
        (error.to_string(), code)
    } else if is_configuration {
        (error.to_string(), 2)
    } else if start.is_some() {
        (error.to_string(), 1)
    } else {
        (format!("{error:#}"), 1)
    }
}

fn run(args: Args) -> anyhow::Result<Verdict> {
    let mut definition = Args::definition();
    match args.command {
        None => output::to_stdout(&definition.render_help().to_string())?,
        Some(Command::Dev(args)) => return dev::run(args),
        Some(Command::Serve(args)) => return serve::run(*args),
        Some(Command::Client(command)) => return client::run(*command),
        Some(Command::Sim(args)) => return sim::run(args),
        Some(Command::Bench(args)) => return bench::run(*args),
        Some(Command::Certs(args)) => return trust::certs::run(args),
        Some(Command::Token(args)) => return trust::token::run(args),
        Some(Command::Completions(args)) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut definition, "paxoslease", &mut script);
            output::bytes_to_stdout(&script)?;
        }
        Some(Command::Man(args)) => man::run(&args)?,
    }
    Ok(Verdict::Well)
}
