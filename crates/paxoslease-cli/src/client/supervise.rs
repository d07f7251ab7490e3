//! Running a command for as long as a lease is held: `lock`'s and `elect`'s side of it.
//!
//! The watchdog starts the command and ends it in time; here is what only the holder of the lease
//! can do: tell the watchdog of every renewal, pass signals on, lend the terminal, and say how it
//! ended. What has to happen in time is the watchdog's; a watchdog that does not get it done,
//! because somebody stopped it, is killed, and its children with it.

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
use super::watchdog::orders::{Order, Report, hear, say, say_with};
use super::watchdog::schedule::Policy;
use super::watchdog::{adopt_orphans, exit_code};
use crate::args::{LossArgs, OnLost};
use crate::output;

/// What to run, and how it ends when the lease is lost.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) policy: Policy,
    /// For the command's environment.
    pub(crate) endpoints: &'a [String],
    /// And what else is to be there, or not.
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

/// Runs the command to its end; its exit code, unless the lease was lost.
pub(crate) fn run(job: &Job<'_>, lease: &LeaseGuard, events: &Events) -> anyhow::Result<u8> {
    // If the watchdog is killed, the command becomes a child of this process.
    adopt_orphans()?;
    events.heed_all()?;
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
    let ended = pollster::block_on(supervisor.attend());
    if let Some(group) = supervisor.group {
        supervisor.terminal.take_back(group);
    }
    // The watchdog ends once nobody is left to talk to, if it has not yet. Dropping our end would
    // not do: the thread that listens has a copy.
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
    say_with(&ours, until(lease), stdin().as_fd())?;
    Ok((watchdog, ours))
}

/// This very binary, also if the file was replaced meanwhile.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// Until when the lease is held. The clock is read first, so it is never later than the truth.
fn until(lease: &LeaseGuard) -> Order {
    let now = since_boot();
    Order::Until(now.saturating_add(lease.remaining()))
}

/// Makes events of what the watchdog says.
fn listen(channel: UnixStream, events: &Events) -> anyhow::Result<()> {
    let to = events.sender.clone();
    let wait = move || {
        while let Ok(Some(report)) = hear(&channel) {
            if to.send_blocking(Event::Report(report)).is_err() {
                return;
            }
        }
        let _nobody = to.send_blocking(Event::Gone);
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(wait)?;
    Ok(())
}

/// Makes an event of a watchdog that is not done by the last instant that was said.
fn check(events: &Events) -> anyhow::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let to = events.sender.clone();
    let wait = move || {
        let mut due_at = None;
        while let Ok(readable) = wait_until(&[theirs.as_fd()], due_at) {
            if readable == [true] {
                let Ok(Some(Order::Until(at))) = hear(&theirs) else { return };
                due_at = Some(at);
            } else if due_at.is_some_and(|at| at <= since_boot()) {
                let _nobody = to.send_blocking(Event::Overdue);
                return;
            }
        }
    };
    thread::Builder::new().name("deadline".to_owned()).spawn(wait)?;
    Ok(ours)
}

struct Supervisor<'a> {
    job: &'a Job<'a>,
    lease: &'a LeaseGuard,
    /// Children this process had before, as after a shell's `exec`.
    own: Vec<Pid>,
    watchdog: Child,
    channel: UnixStream,
    /// To whom checks on the watchdog.
    deadline: UnixStream,
    events: &'a Events,
    terminal: Terminal,
    /// The command's, once it runs.
    group: Option<Pid>,
    /// Whether the command asked for the terminal.
    is_lent: bool,
    /// Whether the lease is over and the watchdog knows.
    is_over: bool,
    /// Whether the watchdog has told the command to end.
    is_ending: bool,
    /// Whether it did not get that done in time.
    is_overdue: bool,
}

impl Supervisor<'_> {
    async fn attend(&mut self) -> anyhow::Result<u8> {
        let mut renewals = self.lease.renewals();
        loop {
            let happened = {
                let change = pin!(self.change(renewals));
                match select(pin!(self.events.next()), change).await {
                    Either::Left((event, _)) => Either::Left(event),
                    Either::Right((renewals, _)) => Either::Right(renewals),
                }
            };
            match happened {
                Either::Right(count) => {
                    renewals = count;
                    self.tell();
                }
                Either::Left(Event::Signal(signal)) => self.pass_on(signal),
                Either::Left(Event::Report(report)) => {
                    if let Some(code) = self.hear(report)? {
                        return if self.is_ending { Err(self.lost().into()) } else { Ok(code) };
                    }
                }
                Either::Left(Event::Gone) => return self.bury(),
                Either::Left(Event::Overdue) => {
                    // What it has said before is heard first, and then that it is gone.
                    self.is_overdue = true;
                    self.watchdog.kill().context("cannot end the watchdog")?;
                }
            }
        }
    }

    /// Waits for a renewal or the loss.
    async fn change(&self, renewals: u64) -> u64 {
        if self.is_over { pending().await } else { self.lease.renewals_other(renewals).await }
    }

    /// Tells the watchdog how the lease stands.
    fn tell(&mut self) {
        self.is_over = !self.lease.is_held();
        self.order(if self.is_over { Order::Lost } else { until(self.lease) });
        self.expect_end();
        if self.is_over && self.job.policy.on_lost == OnLost::Ignore {
            let (name, fence) = (quoted(self.lease.name()), self.lease.fence());
            output::to_stderr(&format!(
                "warning: {name} (fence {fence}) is lost and may be somebody else's; the command \
                 runs on, as --on-lost ignore asks\n"
            ));
        }
    }

    fn order(&self, order: Order) {
        // Whether it is gone is an event of its own.
        let _gone = say(&self.channel, order);
        // Nobody else has a reason to stop it.
        let _gone = kill_process(Pid::from_child(&self.watchdog), Signal::CONT);
    }

    /// Says by when the watchdog has to be done, as things stand: half the margin is its own.
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
        let _ended = say(&self.deadline, Order::Until(at));
    }

    fn pass_on(&mut self, signal: i32) {
        // Back from the background, or from being stopped along with the command.
        if signal == SIGCONT && self.is_lent {
            self.group.map(|group| self.terminal.lend(group));
        }
        self.order(Order::Pass(signal));
    }

    /// The exit code, once the command has ended.
    fn hear(&mut self, report: Report) -> anyhow::Result<Option<u8>> {
        match report {
            Report::Started(id) => self.group = Pid::from_raw(id),
            Report::NotStarted(code) => {
                let error = io::Error::from_raw_os_error(code);
                let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                let command = quoted(&self.job.command[0].to_string_lossy());
                let problem = concise(&[], &error.to_string());
                return Err(Failure::new(code, format!("cannot run {command}: {problem}")).into());
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

    /// The command was stopped: by Ctrl-Z, or because it wants the terminal.
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
            // Somebody did that on purpose, and to the command alone.
            _ => return,
        }
        // The shell has to see that its job stopped. SIGCONT, an event, undoes all of it.
        self.terminal.take_back(group);
        let _stopped = kill_current_process_group(Signal::STOP);
    }

    fn lost(&self) -> Failure {
        let (name, fence) = (quoted(self.lease.name()), self.lease.fence());
        let why = if self.is_over {
            "is not held any more: it ran out, was given back by somebody else, or the cell lost it"
        } else {
            "could not be renewed in time"
        };
        Failure::new(
            LOST,
            format!("{name} (fence {fence}) {why}; the command was ended. See `paxoslease status`"),
        )
    }

    /// The watchdog is gone without a word. Whoever it looked after becomes a child of this
    /// process, also if it was killed after it had started the command and before it said so.
    fn bury(&mut self) -> anyhow::Result<u8> {
        // Its end of the channel is closed before its children have another parent.
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
            // Whoever ends leaves its own children to us.
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
        let problem = "somebody killed the watchdog of this lock, so the command was ended too";
        Err(Failure::new(LOST, problem).into())
    }
}
