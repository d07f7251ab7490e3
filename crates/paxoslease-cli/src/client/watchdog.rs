//! The process between `lock` and its command. It starts the command, and ends it in time even if
//! `lock` is stopped or killed.
//!
//! It knows no cell and no lease, only the time until which the command may run. `lock` reports
//! that time after every renewal. If no report comes in time, or if `lock` has ended, the watchdog
//! ends the command's group, and each process that left the group as soon as it is an orphan.
//!
//! *Why no other process is ever signalled.* The system does not reuse the id of a group while a
//! process of the group exists, including one that has ended and for which its parent has not
//! waited. The watchdog is the parent of the command and adopts the orphans of the command (it is a
//! subreaper), so only the watchdog waits for them. It signals the group only while the command, or
//! an adopted process of the same group, is its child. It signals other processes only if they are
//! its children.
//!
//! *Why it is not signalled itself.* It has a group of its own, so keys typed at the terminal do
//! not reach it. It ignores signals that ask it to end. It is not called `paxoslease`, so `pkill
//! -STOP paxoslease` stops only `lock`. If the watchdog is killed, `lock` adopts the command and
//! ends it. If both are killed, the command is killed with the watchdog, because it asked the
//! system for that.

pub(crate) mod launch;
pub(crate) mod orders;
pub(crate) mod schedule;

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, kill_process, kill_process_group, wait, waitpgid,
};
use signal_hook::consts::SIGCHLD;

use self::orders::{Order, Report, receive, receive_with_file, send};
use self::schedule::{KillSignal, Policy, Schedule};
use super::alarm::{since_boot, wait_until};
use super::children::children;
use super::events::{ENDING, ignore_end_signals};
use crate::Verdict;
use crate::args::WatchdogArgs;

pub(crate) fn run(args: WatchdogArgs) -> anyhow::Result<Verdict> {
    let WatchdogArgs { on_lost, grace, margin, command } = args;
    rename();
    adopt_orphans()?;
    ignore_end_signals()?;
    let ended = ended_children().context("cannot handle signals")?;
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let first = receive_with_file(&channel).context("only `paxoslease lock` runs this")?;
    let (Order::Until(ends_at), stdin) = first else { bail!("the lease came without its end") };
    let mut schedule = Schedule::new(Policy { on_lost, grace, margin }, ends_at);
    if schedule.due(since_boot()).is_some() {
        // This process or `lock` was paused for so long that no time is left to run anything.
        send(&channel, Report::Ending)?;
        send(&channel, Report::Ended(0))?;
        return Ok(Verdict::Well);
    }
    let leader = match launch::launch(&command, &stdin, on_lost).context("cannot start CMD")? {
        Ok(leader) => leader,
        Err(code) => {
            send(&channel, Report::NotStarted(code))?;
            return Ok(Verdict::Well);
        }
    };
    // The command has the file now.
    drop(stdin);
    let mut watchdog = Watchdog {
        channel,
        ended,
        leader,
        schedule,
        code: None,
        told: Vec::new(),
        is_asked: false,
        is_winding_up: false,
        has_lock: true,
        is_untouchable: false,
    };
    let watched = watchdog.watch();
    if watched.is_err() {
        watchdog.signal(Signal::KILL);
    }
    watched.map(|()| Verdict::Well)
}

/// The name that `ps` and `pkill` see.
fn rename() {
    let _as_before = rustix::thread::set_name(c"lease-watchdog");
}

/// Makes this process the parent of orphans among its descendants.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("cannot adopt orphans")?;
    Ok(())
}

/// A file that becomes readable whenever a child has ended or stopped.
fn ended_children() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

/// The exit code as shells count: the process's own, or 128 plus the signal. `None` for a stopped
/// process.
pub(crate) fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

struct Watchdog {
    channel: UnixStream,
    ended: UnixStream,
    /// The command's process. Its group has the same id.
    leader: Pid,
    schedule: Schedule,
    /// The exit code of the command, once it has ended.
    code: Option<u8>,
    /// Processes outside the group that were asked to end.
    told: Vec<Pid>,
    /// Whether the command was asked to end, or killed.
    is_asked: bool,
    /// Whether the command has ended, and the rest of its group has the grace to end too.
    is_winding_up: bool,
    /// Whether `lock` still runs.
    has_lock: bool,
    /// Whether a process could not be signalled, and `lock` knows it.
    is_untouchable: bool,
}

impl Watchdog {
    /// Runs until the command has ended and `lock` knows it or has ended.
    fn watch(&mut self) -> anyhow::Result<()> {
        self.report(Report::Started(self.leader.as_raw_nonzero().get()));
        let code = loop {
            let is_alone = self.reap();
            if let Some(code) = self.code {
                // A command that ends by itself may leave processes behind; they are not ended.
                if is_alone || !(self.schedule.is_ending() || self.is_asked) {
                    break code;
                }
                // A shell ends at once when it is asked to. Its children may do the work and still
                // clean up, so the lease is not released yet.
                self.is_winding_up |= self.schedule.wind_up(since_boot());
            }
            self.signal_escaped();
            if let Some(signal) = self.schedule.due(since_boot()) {
                self.act(signal);
                continue;
            }
            if self.wait()? {
                self.handle_order()?;
            }
        };
        self.report(Report::Ended(code));
        while self.has_lock {
            self.has_lock = receive::<Order>(&self.channel)?.is_some();
        }
        Ok(())
    }

    /// Waits for an event. Returns whether there is an order.
    fn wait(&self) -> anyhow::Result<bool> {
        let files = [self.ended.as_fd(), self.channel.as_fd()];
        let files = if self.has_lock { &files[..] } else { &files[..1] };
        let readable = wait_until(files, self.schedule.alarm_at()).context("cannot wait")?;
        let is_order = readable.get(1) == Some(&true);
        // `reap` finds out which process ended, and how.
        let _nothing = (&self.ended).read(&mut [0; 64]);
        Ok(is_order)
    }

    fn handle_order(&mut self) -> anyhow::Result<()> {
        match receive(&self.channel).context("cannot read from `paxoslease lock`")? {
            Some(Order::Until(ends_at)) => self.schedule.extend(ends_at),
            Some(Order::Pass(signal)) => {
                self.is_asked |= ENDING.contains(&signal);
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal(signal);
                }
            }
            Some(Order::Lost) => self.lose(),
            None => {
                self.has_lock = false;
                self.lose();
            }
        }
        Ok(())
    }

    fn lose(&mut self) {
        if let Some(signal) = self.schedule.lose(since_boot()) {
            self.act(signal);
        }
    }

    fn act(&mut self, signal: KillSignal) {
        if !self.is_winding_up {
            self.report(Report::Ending);
        }
        match signal {
            KillSignal::Terminate => {
                self.signal(Signal::TERM);
                // A stopped process could not use the grace.
                self.signal(Signal::CONT);
            }
            KillSignal::Kill => self.signal(Signal::KILL),
        }
    }

    /// Signals the group, as long as the id is still that of the group.
    fn signal(&mut self, signal: Signal) {
        if self.code.is_none() || !self.is_group_gone() {
            self.signalled(kill_process_group(self.leader, signal));
        }
    }

    /// Ends processes that left the group, once the command must end. They become children of this
    /// process when their parents end, which wakes it up, so that it misses none.
    fn signal_escaped(&mut self) {
        let Some(signal) = self.schedule.last() else { return };
        for child in children() {
            match signal {
                KillSignal::Kill => self.signalled(kill_process(child, Signal::KILL)),
                // The group was asked already, and once is enough.
                KillSignal::Terminate if getpgid(Some(child)) == Ok(self.leader) => {}
                KillSignal::Terminate if self.told.contains(&child) => {}
                KillSignal::Terminate => {
                    self.told.push(child);
                    self.signalled(kill_process(child, Signal::TERM));
                    self.signalled(kill_process(child, Signal::CONT));
                }
            }
        }
    }

    fn signalled(&mut self, outcome: rustix::io::Result<()>) {
        // Other errors mean that the process has ended, and this process has not waited for it yet.
        if outcome == Err(Errno::PERM) && !std::mem::replace(&mut self.is_untouchable, true) {
            self.report(Report::Untouchable);
        }
    }

    /// Waits for children that have ended, its own and adopted ones. Returns whether none is left.
    fn reap(&mut self) -> bool {
        self.reap_by(|| wait(WaitOptions::NOHANG | WaitOptions::UNTRACED))
    }

    fn reap_by(
        &mut self,
        wait: impl Fn() -> rustix::io::Result<Option<(Pid, WaitStatus)>>,
    ) -> bool {
        loop {
            match wait() {
                Ok(Some((child, status))) => self.reaped(child, status),
                Ok(None) => return false,
                Err(_no_child) => return true,
            }
        }
    }

    fn reaped(&mut self, child: Pid, status: WaitStatus) {
        if !status.stopped() {
            self.told.retain(|told| *told != child);
        }
        if child != self.leader {
            return;
        }
        match status.stopping_signal() {
            Some(signal) => self.report(Report::Stopped(signal)),
            None => {
                self.is_asked |= status.signaled();
                self.code = exit_code(status);
            }
        }
    }

    /// Whether no child in the group is left.
    fn is_group_gone(&mut self) -> bool {
        let leader = self.leader;
        self.reap_by(|| waitpgid(leader, WaitOptions::NOHANG))
    }

    fn report(&self, report: Report) {
        // If `lock` has ended, the next read from the channel shows it.
        let _gone = send(&self.channel, report);
    }
}
