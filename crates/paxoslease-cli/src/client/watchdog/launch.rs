//! The process between the watchdog and its command: it asks the system to be killed when the
//! watchdog is, and then becomes the command.
//!
//! So a command ends even if `lock` and its watchdog are killed at once. The system forgets the
//! request when a program runs as another user, and it holds for this process only, not for its
//! children. If the process cannot become the command, it writes the reason to its stdin, a socket
//! that otherwise closes by itself. It first receives the command's own stdin over that socket.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, getpid, getppid};

use super::orders::{Order, Report, receive, receive_with_file, send, send_with_file};
use crate::Verdict;
use crate::args::{LaunchArgs, OnLost};
use crate::client::supervise::this_program;

pub(crate) fn run(args: LaunchArgs) -> anyhow::Result<Verdict> {
    let LaunchArgs { with, command } = args;
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (_, stdin) = receive_with_file(&channel).context("only `paxoslease lock` runs this")?;
    if let Some(with) = with {
        end_with_parent()?;
        ensure!(getppid() == Pid::from_raw(with), "the watchdog is gone already");
    }
    let error = Command::new(&command[0]).args(&command[1..]).stdin(stdin).exec();
    send(&channel, Report::NotStarted(error.raw_os_error().unwrap_or_default()))?;
    Ok(Verdict::Well)
}

fn end_with_parent() -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot end with the watchdog")?;
    Ok(())
}

/// Starts a command from the watchdog's main thread: the command ends with that thread. Fails with
/// the error code of the system.
pub(super) fn launch(
    command: &[OsString],
    stdin: &OwnedFd,
    on_lost: OnLost,
) -> io::Result<Result<Pid, i32>> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut process = Command::new(this_program()?);
    process.arg0("paxoslease").arg("launch");
    if on_lost != OnLost::Ignore {
        process.args(["--with", &getpid().to_string()]);
    }
    process.arg("--").args(command).stdin(OwnedFd::from(theirs)).process_group(0);
    let leader = Pid::from_child(&process.spawn()?);
    // The process has the other end, and no other process may keep it open.
    drop(process);
    send_with_file(&ours, Order::Until(Duration::ZERO), stdin.as_fd())?;
    match receive(&ours)? {
        Some(Report::NotStarted(code)) => Ok(Err(code)),
        _ => Ok(Ok(leader)),
    }
}
