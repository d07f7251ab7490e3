//! Runs a command while a lease is held: the part of `lock` and `elect` that holds the lease.
//!
//! The watchdog starts the command and ends it in time. This module does what only the holder can
//! do: it reports every renewal to the watchdog, forwards signals, lends the terminal to the
//! command, and reports the end. If the watchdog does not end the command in time, because it was
//! stopped, this module kills the watchdog, and its children with it.

use std::ffi::OsString;
use std::future::pending;
use std::io::{self, stdin};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::{Either, select};
use paxoslease_client::LeaseGuard;
use rustix::process::{Pid, Signal, WaitOptions, kill_current_process_group, kill_process, wait};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::alarm::{since_boot, wait_until};
use super::children::children;
use super::events::{Event, Events};
use super::failure::{Failure, LOST, concise};
use super::terminal::Terminal;
use super::text::quoted;
use super::watchdog::orders::{Order, Report, receive, send, send_with_file};
use super::watchdog::schedule::Policy;
use super::watchdog::{adopt_orphans, exit_code};
use crate::args::{LossArgs, OnLost};
use crate::output;

/// The command, and how it ends when the lease is lost.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) policy: Policy,
    /// For the environment of the command.
    pub(crate) endpoints: &'a [String],
    /// Further variables to set, or to remove.
    pub(crate) environment: Vec<(&'static str, Option<OsString>)>,
}

/// Checks `--grace` against the ttl.
pub(crate) fn policy(args: &LossArgs, ttl: Duration) -> Result<Policy, Failure> {
    Policy::new(args.on_lost, ttl, args.grace).map_err(|grace_max| {
        let grace = args.grace.unwrap_or_default();
        Failure::usage(format!(
            "--grace {grace:?} leaves no time to renew a lease of {ttl:?}; at most {grace_max:?}, \
             or a longer --ttl"
        ))
    })
}

/// Runs the command to its end. Returns its exit code, unless the lease was lost.
pub(crate) fn run(job: &Job<'_>, lease: &mut LeaseGuard, events: &Events) -> anyhow::Result<u8> {
    // If the watchdog is killed, the command becomes a child of this process.
    adopt_orphans()?;
    events.add_forwarded()?;
    let own = children();
    let (watchdog, channel) = start(job, lease).context("cannot start the watchdog")?;
    listen(channel.try_clone()?, events)?;
    let deadline = check(events)?;
    let mut supervisor = Supervisor {
        job,
        lease,
        own,
        watchdog,
        channel,
        deadline,
        events,
        terminal: Terminal::open(),
        group: None,
        is_lent: false,
        is_over: false,
        is_ending: false,
        is_overdue: false,
    };
    supervisor.expect_end();
    let ended = paxoslease_client::block_on(supervisor.handle_events());
    if let Some(group) = supervisor.group {
        supervisor.terminal.take_back(group);
    }
    // The watchdog ends when the channel closes, if it has not ended before. Dropping this end is
    // not enough: the thread that listens has a copy.
    let _gone = supervisor.channel.shutdown(Shutdown::Both);
    supervisor.watchdog.wait().context("cannot wait for the watchdog")?;
    ended
}

fn start(job: &Job<'_>, lease: &LeaseGuard) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let Policy { on_lost, grace, margin } = job.policy;
    let on_lost = clap::ValueEnum::to_possible_value(&on_lost).expect("none is hidden");
    let mut watchdog = Command::new(this_program()?);
    for (name, value) in &job.environment {
        match value {
            Some(value) => watchdog.env(name, value),
            None => watchdog.env_remove(name),
        };
    }
    let watchdog = watchdog
        .arg0("paxoslease")
        .args(["watchdog", "--on-lost", on_lost.get_name()])
        .args(["--grace", &format!("{grace:?}"), "--margin", &format!("{margin:?}"), "--"])
        .args(job.command)
        .env("PAXOSLEASE_NAME", lease.name())
        .env("PAXOSLEASE_FENCE", lease.fence().to_string())
        .env("PAXOSLEASE_ENDPOINTS", job.endpoints.join(","))
        .stdin(OwnedFd::from(theirs))
        .process_group(0)
        .spawn()?;
    send_with_file(&ours, until(lease), stdin().as_fd())?;
    Ok((watchdog, ours))
}

/// The running binary, even if its file was replaced meanwhile.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// When the lease ends. The clock is read first, so the result is never too late.
fn until(lease: &LeaseGuard) -> Order {
    let now = since_boot();
    Order::Until(now.saturating_add(lease.remaining()))
}

/// Turns the reports of the watchdog into events.
fn listen(channel: UnixStream, events: &Events) -> anyhow::Result<()> {
    let to = events.sender.clone();
    let wait = move || {
        while let Ok(Some(report)) = receive(&channel) {
            if to.send_blocking(Event::Report(report)).is_err() {
                return;
            }
        }
        let _ended = to.send_blocking(Event::Gone);
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(wait)?;
    Ok(())
}

/// Starts a thread that sends an event when the watchdog misses its last deadline.
fn check(events: &Events) -> anyhow::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let to = events.sender.clone();
    let wait = move || {
        let mut due_at = None;
        while let Ok(readable) = wait_until(&[theirs.as_fd()], due_at) {
            if readable == [true] {
                let Ok(Some(Order::Until(at))) = receive(&theirs) else { return };
                due_at = Some(at);
            } else if due_at.is_some_and(|at| at <= since_boot()) {
                let _ended = to.send_blocking(Event::Overdue);
                return;
            }
        }
    };
    thread::Builder::new().name("deadline".to_owned()).spawn(wait)?;
    Ok(ours)
}

/// Waits for a renewal or the loss of the lease, unless the lease is over.
async fn next_change(lease: &mut LeaseGuard, is_over: bool) {
    if is_over {
        pending::<()>().await;
    }
    lease.changed().await;
}

struct Supervisor<'a> {
    job: &'a Job<'a>,
    lease: &'a mut LeaseGuard,
    /// The children that this process had before, for example after a shell's `exec`.
    own: Vec<Pid>,
    watchdog: Child,
    channel: UnixStream,
    /// The channel to the thread that checks the watchdog's deadline.
    deadline: UnixStream,
    events: &'a Events,
    terminal: Terminal,
    /// The command's process group, once it runs.
    group: Option<Pid>,
    /// Whether the command has the terminal.
    is_lent: bool,
    /// Whether the lease is over and the watchdog knows it.
    is_over: bool,
    /// Whether the watchdog has asked the command to end.
    is_ending: bool,
    /// Whether the watchdog missed its deadline.
    is_overdue: bool,
}

impl Supervisor<'_> {
    async fn handle_events(&mut self) -> anyhow::Result<u8> {
        loop {
            let event = {
                let event = pin!(self.events.next());
                match select(event, pin!(next_change(self.lease, self.is_over))).await {
                    Either::Left((event, _)) => Some(event),
                    Either::Right(_) => None,
                }
            };
            match event {
                None => self.report_lease(),
                Some(Event::Signal(signal)) => self.forward(signal),
                Some(Event::Report(report)) => {
                    if let Some(code) = self.handle_report(report)? {
                        return if self.is_ending { Err(self.lost().into()) } else { Ok(code) };
                    }
                }
                Some(Event::Gone) => return self.reap_after_watchdog(),
                Some(Event::Overdue) => {
                    // Its earlier reports come first, then the event that it has ended.
                    self.is_overdue = true;
                    self.watchdog.kill().context("cannot end the watchdog")?;
                }
            }
        }
    }

    /// Tells the watchdog the state of the lease.
    fn report_lease(&mut self) {
        self.is_over = !self.lease.is_held();
        self.order(if self.is_over { Order::Lost } else { until(self.lease) });
        self.expect_end();
        if self.is_over && self.job.policy.on_lost == OnLost::Ignore {
            let (name, fence) = (quoted(self.lease.name()), self.lease.fence());
            output::to_stderr(&format!(
                "warning: {name} (fence {fence}) is lost, and another client may hold it; the command \
                 runs on, as --on-lost ignore asks\n"
            ));
        }
    }

    fn order(&self, order: Order) {
        // If the watchdog has ended, there is an event for that.
        let _gone = send(&self.channel, order);
        // A SIGCONT, in case the watchdog was stopped: it should never be.
        let _gone = kill_process(Pid::from_child(&self.watchdog), Signal::CONT);
    }

    /// Sets the deadline of the watchdog: it may use half of the margin.
    fn expect_end(&self) {
        let Policy { on_lost, grace, margin } = self.job.policy;
        let now = since_boot();
        let at = match on_lost {
            OnLost::Ignore => return,
            OnLost::Kill if self.is_over => now + margin,
            OnLost::Term if self.is_over => now + grace + margin,
            OnLost::Kill | OnLost::Term => {
                (now + self.lease.remaining()).saturating_sub(margin / 2)
            }
        };
        let _ended = send(&self.deadline, Order::Until(at));
    }

    fn forward(&mut self, signal: i32) {
        // This process is in the foreground again, or was stopped together with the command.
        if signal == SIGCONT && self.is_lent {
            self.group.map(|group| self.terminal.lend(group));
        }
        self.order(Order::Pass(signal));
    }

    /// Handles a report. Returns the exit code, once the command has ended.
    fn handle_report(&mut self, report: Report) -> anyhow::Result<Option<u8>> {
        match report {
            Report::Started(id) => self.group = Pid::from_raw(id),
            Report::NotStarted(code) => {
                let error = io::Error::from_raw_os_error(code);
                let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                let command = self.job.command[0].to_string_lossy();
                let problem = concise(&[], &error.to_string());
                let then = match self.job.command {
                    [_] if command.contains([' ', ';', '|', '&', '>', '<']) => {
                        "; a line for the shell goes after -c"
                    }
                    _ => "",
                };
                let problem = format!("cannot run {}: {problem}{then}", quoted(&command));
                return Err(Failure::new(code, problem).into());
            }
            Report::Stopped(signal) => self.stopped(signal),
            Report::Ending => self.is_ending = true,
            Report::Untouchable => output::to_stderr(
                "warning: the command runs as another user and cannot be signalled\n",
            ),
            Report::Ended(code) => return Ok(Some(code)),
        }
        Ok(None)
    }

    /// The command was stopped: by Ctrl-Z, or because it reads from the terminal.
    fn stopped(&mut self, signal: i32) {
        let Some(group) = self.group else { return };
        match signal {
            SIGTTIN | SIGTTOU => {
                self.is_lent = true;
                if self.terminal.lend(group) {
                    self.order(Order::Pass(SIGCONT));
                    return;
                }
            }
            SIGTSTP => {}
            // Another process stopped only the command, on purpose.
            _ => return,
        }
        // Stops this process too, so that the shell notices. SIGCONT, an event, undoes both.
        self.terminal.take_back(group);
        let _stopped = kill_current_process_group(Signal::STOP);
    }

    fn lost(&self) -> Failure {
        let (name, fence) = (quoted(self.lease.name()), self.lease.fence());
        let why = if self.is_over {
            "is not held any more: it expired, another client released it, or the cell lost it"
        } else {
            "could not be renewed in time"
        };
        Failure::new(
            LOST,
            format!("{name} (fence {fence}) {why}; the command was ended. See `paxoslease status`"),
        )
    }

    /// The watchdog has ended without a report. Its children are children of this process now, even
    /// if it was killed between starting the command and reporting that.
    fn reap_after_watchdog(&mut self) -> anyhow::Result<u8> {
        // Its end of the channel closes before its children have another parent.
        self.watchdog.wait().context("cannot wait for the watchdog")?;
        let is_to_end = self.job.policy.on_lost != OnLost::Ignore;
        loop {
            let orphans: Vec<Pid> =
                children().into_iter().filter(|id| !self.own.contains(id)).collect();
            if orphans.is_empty() {
                break;
            }
            if is_to_end {
                for orphan in &orphans {
                    let _ended = kill_process(*orphan, Signal::KILL);
                }
            }
            // A process that ends leaves its own children to us.
            let Ok(Some((child, status))) = wait(WaitOptions::empty()) else { break };
            self.own.retain(|own| *own != child);
            if !is_to_end
                && self.group.is_none_or(|group| group == child)
                && let Some(code) = exit_code(status)
            {
                return Ok(code);
            }
        }
        if self.is_overdue {
            return Err(self.lost().into());
        }
        let problem =
            "another process killed the watchdog of this lock, so the command was ended too";
        Err(Failure::new(LOST, problem).into())
    }
}
