//! The commands that talk to a cell as its clients do: `lock`, `elect` and the like.
//!
//! Here is what they share: how to connect, and what an error of the library means for somebody
//! at a shell: one line with what to do next, and an exit code. Owns no lease and no protocol.

mod alarm;
mod campaign;
mod children;
mod elect;
mod events;
mod failure;
mod lock;
mod look;
mod status;
mod supervise;
mod table;
mod tenure;
mod terminal;
mod text;
mod watch;
mod watchdog;

use paxoslease_client::Client;

pub(crate) use self::failure::Failure;
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
        ClientCommand::Watchdog(args) => watchdog::run(args),
        ClientCommand::Launch(args) => watchdog::launch::run(args),
    }
}

/// Nothing is sent before the first question.
fn connect(args: &CellArgs) -> Result<Client, Failure> {
    let builder = Client::builder().endpoints(&args.endpoints.join(","));
    let builder = Trust::load(&args.trust)?.apply(builder);
    builder.start().map_err(|error| Failure::usage(error.to_string()))
}
