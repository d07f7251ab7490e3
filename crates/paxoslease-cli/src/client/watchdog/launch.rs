//! Between the watchdog and its command: a process that asks to be killed when the watchdog is, and
//! then becomes the command.
//!
//! So a command ends even if `lock` and its watchdog are killed at once. The system forgets the
//! wish for programs that run as another user, and it is for this process alone, not for those it
//! starts. Why it could not become the command is said over its stdin, a socket that closes by
//! itself otherwise; the command's own stdin comes over it first.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, getpid, getppid};

use super::orders::{Order, Report, hear, hear_with, say, say_with};
use crate::Verdict;
use crate::args::{LaunchArgs, OnLost};
use crate::client::supervise::this_program;

pub(crate) fn run(args: LaunchArgs) -> anyhow::Result<Verdict> {
    let LaunchArgs { with, command } = args;
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (_, stdin) = hear_with(&channel).context("`paxoslease lock` runs this, nobody else")?;
    if let Some(with) = with {
        end_with_parent()?;
        ensure!(getppid() == Pid::from_raw(with), "the watchdog is gone already");
    }
    let error = Command::new(&command[0]).args(&command[1..]).stdin(stdin).exec();
    say(&channel, Report::NotStarted(error.raw_os_error().unwrap_or_default()))?;
    Ok(Verdict::Well)
}

fn end_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot end with the watchdog")?;
    Ok(())
}

/// Starts a command from the watchdog's main thread, which is the one it ends with. Says why not
/// in terms of the system's error codes.
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
    // It has the other end, which nobody must keep open.
    drop(process);
    say_with(&ours, Order::Until(Duration::ZERO), stdin.as_fd())?;
    match hear(&ours)? {
        Some(Report::NotStarted(code)) => Ok(Err(code)),
        _ => Ok(Ok(leader)),
    }
}
