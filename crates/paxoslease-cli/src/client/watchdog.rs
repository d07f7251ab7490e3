//! The process between `lock` and its command: it starts the command, and ends it in time even if
//! `lock` itself is stopped or killed.
//!
//! It knows no cell and no lease, only until when the command may run. `lock` says so after every
//! renewal. If it does not hear of one in time, or hears that `lock` is gone, it ends the
//! command's group, and whoever left the group as soon as it is an orphan.
//!
//! *Why no stranger is ever hit.* A group's number is given to nobody else while a process of the
//! group exists, an ended one included until its parent has taken note of it. This process is the
//! command's parent and adopts what the command leaves behind (it is a subreaper), so note is
//! taken here and nowhere else. It signals the group only as long as the command, or somebody of
//! the same group that it adopted, is a child of its own, and others only as its own children.
//!
//! *Why it is not hit itself.* It has a group of its own, so nothing typed at the terminal reaches
//! it; it refuses signals that ask it to end; and it is not called `paxoslease`, so
//! `pkill -STOP paxoslease` stops one of the two only. Should it be killed, `lock` adopts the
//! command in turn and ends it; should both be, the command itself has asked to end with it.

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

use self::orders::{Order, Report, hear, hear_with, say};
use self::schedule::{Deed, Policy, Schedule};
use super::alarm::{since_boot, wait_until};
use super::children::children;
use super::events::{ENDING, refuse_to_end};
use crate::Verdict;
use crate::args::WatchdogArgs;

pub(crate) fn run(args: WatchdogArgs) -> anyhow::Result<Verdict> {
    let WatchdogArgs { on_lost, grace, margin, command } = args;
    rename();
    adopt_orphans()?;
    refuse_to_end()?;
    let ended = ended_children().context("cannot handle signals")?;
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let first = hear_with(&channel).context("`paxoslease lock` runs this, nobody else")?;
    let (Order::Until(ends_at), stdin) = first else { bail!("the lease came without its end") };
    let mut schedule = Schedule::new(Policy { on_lost, grace, margin }, ends_at);
    if schedule.due(since_boot()).is_some() {
        // Somebody was paused for so long that there is no time left to run anything.
        say(&channel, Report::Ending)?;
        say(&channel, Report::Ended(0))?;
        return Ok(Verdict::Well);
    }
    let leader = match launch::launch(&command, &stdin, on_lost).context("cannot start CMD")? {
        Ok(leader) => leader,
        Err(code) => {
            say(&channel, Report::NotStarted(code))?;
            return Ok(Verdict::Well);
        }
    };
    // The command has it.
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
        is_heard: true,
        is_untouchable: false,
    };
    let watched = watchdog.watch();
    if watched.is_err() {
        watchdog.signal(Signal::KILL);
    }
    watched.map(|()| Verdict::Well)
}

/// For `ps` and `pkill`.
fn rename() {
    #[cfg(target_os = "linux")]
    let _as_before = rustix::thread::set_name(c"lease-watchdog");
}

/// Makes this process the parent of whatever its descendants leave behind.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("cannot adopt orphans")?;
    Ok(())
}

/// Readable whenever a child has ended or stopped.
fn ended_children() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

/// As shells count: the exit code, or 128 and the signal. `None` for who is only stopped.
pub(crate) fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

struct Watchdog {
    channel: UnixStream,
    ended: UnixStream,
    /// The command; its group has the same number.
    leader: Pid,
    schedule: Schedule,
    /// Of the command, once it has ended and note was taken of it.
    code: Option<u8>,
    /// Those outside the group that have been asked to go.
    told: Vec<Pid>,
    /// Whether somebody asked the command to end, or ended it.
    is_asked: bool,
    /// Whether it did, and what is left of it has the grace to go too.
    is_winding_up: bool,
    /// Whether `lock` is there.
    is_heard: bool,
    /// Whether somebody could not be signalled, and `lock` was told.
    is_untouchable: bool,
}

impl Watchdog {
    /// Until the command has ended and `lock` knows or is gone.
    fn watch(&mut self) -> anyhow::Result<()> {
        self.report(Report::Started(self.leader.as_raw_nonzero().get()));
        let code = loop {
            let is_alone = self.take_note();
            if let Some(code) = self.code {
                // What a command leaves behind that ended by itself is not for us to end.
                if is_alone || !(self.schedule.is_ending() || self.is_asked) {
                    break code;
                }
                // A shell ends at once when it is asked to. The work may be its children's, who
                // still clean up, so the lease is not handed over yet.
                self.is_winding_up |= self.schedule.wind_up(since_boot());
            }
            self.chase();
            if let Some(deed) = self.schedule.due(since_boot()) {
                self.act(deed);
                continue;
            }
            if self.wait()? {
                self.obey()?;
            }
        };
        self.report(Report::Ended(code));
        while self.is_heard {
            self.is_heard = hear::<Order>(&self.channel)?.is_some();
        }
        Ok(())
    }

    /// Waits for something to happen; says whether there is an order.
    fn wait(&self) -> anyhow::Result<bool> {
        let files = [self.ended.as_fd(), self.channel.as_fd()];
        let files = if self.is_heard { &files[..] } else { &files[..1] };
        let readable = wait_until(files, self.schedule.alarm_at()).context("cannot wait")?;
        let is_order = readable.get(1) == Some(&true);
        // Whether and how anybody ended is for `take_note` to find out.
        let _nothing = (&self.ended).read(&mut [0; 64]);
        Ok(is_order)
    }

    fn obey(&mut self) -> anyhow::Result<()> {
        match hear(&self.channel).context("cannot hear from `paxoslease lock`")? {
            Some(Order::Until(ends_at)) => self.schedule.extend(ends_at),
            Some(Order::Pass(signal)) => {
                self.is_asked |= ENDING.contains(&signal);
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal(signal);
                }
            }
            Some(Order::Lost) => self.lose(),
            None => {
                self.is_heard = false;
                self.lose();
            }
        }
        Ok(())
    }

    fn lose(&mut self) {
        if let Some(deed) = self.schedule.lose(since_boot()) {
            self.act(deed);
        }
    }

    fn act(&mut self, deed: Deed) {
        if !self.is_winding_up {
            self.report(Report::Ending);
        }
        match deed {
            Deed::Terminate => {
                self.signal(Signal::TERM);
                // Whoever is stopped could not use the grace.
                self.signal(Signal::CONT);
            }
            Deed::Kill => self.signal(Signal::KILL),
        }
    }

    /// Signals the group, as long as its number is its own.
    fn signal(&mut self, signal: Signal) {
        if self.code.is_none() || !self.is_group_gone() {
            self.signalled(kill_process_group(self.leader, signal));
        }
    }

    /// Ends those who left the group, once it is time to. They are children of ours when their
    /// parents have ended, which wakes us up, so in the end nobody is left out.
    fn chase(&mut self) {
        let Some(deed) = self.schedule.last() else { return };
        for child in children() {
            match deed {
                Deed::Kill => self.signalled(kill_process(child, Signal::KILL)),
                // The group has been asked, and once is enough.
                Deed::Terminate if getpgid(Some(child)) == Ok(self.leader) => {}
                Deed::Terminate if self.told.contains(&child) => {}
                Deed::Terminate => {
                    self.told.push(child);
                    self.signalled(kill_process(child, Signal::TERM));
                    self.signalled(kill_process(child, Signal::CONT));
                }
            }
        }
    }

    fn signalled(&mut self, outcome: rustix::io::Result<()>) {
        // Another error means that they have ended, and only we have yet to take note of it.
        if outcome == Err(Errno::PERM) && !std::mem::replace(&mut self.is_untouchable, true) {
            self.report(Report::Untouchable);
        }
    }

    /// Takes note of children that have ended, our own and adopted ones; says whether none is left.
    fn take_note(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((child, status))) => self.note(child, status),
                Ok(None) => return false,
                Err(_no_child) => return true,
            }
        }
    }

    fn note(&mut self, child: Pid, status: WaitStatus) {
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

    /// Whether no child of ours is left in the group.
    fn is_group_gone(&mut self) -> bool {
        loop {
            match waitpgid(self.leader, WaitOptions::NOHANG) {
                Ok(Some((child, status))) => self.note(child, status),
                Ok(None) => return false,
                Err(_no_child) => return true,
            }
        }
    }

    fn report(&self, report: Report) {
        // Whether `lock` is gone is seen when it is listened to.
        let _gone = say(&self.channel, report);
    }
}
