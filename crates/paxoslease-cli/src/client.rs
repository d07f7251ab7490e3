//! The commands that talk to a cell, such as `lock` and `elect`.
//!
//! This module has what they share: the connection, and how an error of the library becomes one
//! line for the user and an exit code. It owns no lease and no protocol.

mod alarm;
mod campaign;
mod children;
mod elect;
mod events;
mod failure;
mod lock;
mod look;
mod members;
mod status;
mod supervise;
mod table;
mod tenure;
mod terminal;
mod text;
mod watch;
mod watchdog;

use paxoslease_client::Client;

pub(crate) use self::failure::{Failure, UNAVAILABLE};
use crate::Verdict;
use crate::args::{CellArgs, ClientCommand};
use crate::trust::Trust;

pub(crate) fn run(command: ClientCommand) -> anyhow::Result<Verdict> {
    match command {
        ClientCommand::Lock(args) => lock::run(args),
        ClientCommand::Elect(args) => elect::run(args),
        ClientCommand::Acquire(args) => tenure::acquire(args),
        ClientCommand::Renew(args) => tenure::renew(args),
        ClientCommand::Release(args) => tenure::release(args),
        ClientCommand::Get(args) => look::get(args),
        ClientCommand::List(args) => look::list(args),
        ClientCommand::Watch(args) => watch::run(args),
        ClientCommand::Status(args) => status::run(args),
        ClientCommand::Members(args) => members::run(args),
        ClientCommand::Watchdog(args) => watchdog::run(args),
        ClientCommand::Launch(args) => watchdog::launch::run(args),
    }
}

/// Sends nothing before the first request.
fn connect(args: &CellArgs) -> Result<Client, Failure> {
    let builder = Client::builder().endpoints(&args.endpoints.join(","));
    let builder = Trust::load(&args.trust)?.apply(builder);
    builder.build().map_err(|error| Failure::usage(error.to_string()))
}
