//! `paxoslease lock`: the command believes that it may run, and its belief ends with it.
//!
//! The worker runs `lock` again and again, and sometimes kills it. The command logs its belief
//! until it is killed. `lock` promises to end it before the lease is over, also if `lock` itself is
//! stopped or killed. A command that did not run for a while, as on a stalled machine, pauses its
//! log: the watchdog of `lock` did not run either, and only the fence protects meanwhile (T5). The
//! exit code of `lock` does not tell whether the lease was still held, so no release is logged as
//! confirmed.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use paxoslease_rig::clock;
use paxoslease_sim::Rng;
use signal_hook::consts::SIGTERM;

use super::worker::{AcquirePlan, Ending, Worker};
use super::{ClientOptions, Part};
use crate::check::nanos;
use crate::log::{Belief, EndReason, EventKind, Kind, Log, Nanos, Operation, now};
use crate::store::{self, Writer};

/// The interval of the command's log, and after how many of them it writes to the store.
const LIVES_EVERY: Duration = Duration::from_millis(2);
const LIVES_PER_WRITE: u64 = 8;

/// After a pause of this length, the command logs nothing for the second time span.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// The exit code of `lock` when another client holds the lease; the command never returns it.
const HELD_ELSEWHERE: u8 = 11;
const NO_QUORUM: i32 = 69;
const LOST: i32 = 75;

/// Runs commands under `lock` without end.
pub(super) fn work(worker: &mut Worker) -> Result<()> {
    loop {
        let plan = worker.ask()?;
        let asked_at = now();
        let mut lock = start(worker, &plan)?;
        if let Ending::Abandon(_) | Ending::Crash = plan.ending {
            // At a random time between its start and the end of the command.
            let long = plan.request.ttl_ms + plan.hold.as_millis() as u64;
            let after = worker.rng.millis(0, long);
            clock::sleep(after);
            lock.kill()?;
            lock.wait()?;
            worker.failed(&plan.request, Operation::Acquire, "killed")?;
            continue;
        }
        let status = lock.wait().context("cannot wait for lock")?;
        match status.code() {
            Some(0) => worker.rest(0, 50),
            Some(code) if code == i32::from(HELD_ELSEWHERE) => {
                worker.denied(&plan, asked_at, None)?;
            }
            Some(NO_QUORUM) => {
                worker.failed(&plan.request, Operation::Acquire, "no quorum")?;
                worker.rest(20, 200);
            }
            Some(LOST) => worker.failed(&plan.request, Operation::Renew, "lost")?,
            Some(code) if code > 128 => worker.failed(&plan.request, Operation::Renew, status)?,
            _ => bail!("lock ended: {status}"),
        }
    }
}

fn start(worker: &mut Worker, plan: &AcquirePlan) -> Result<Child> {
    let (attempt, hold_ms) = (plan.request.attempt, plan.hold.as_millis() as u64);
    let command = Part::Command { attempt, hold_ms, stubborn: worker.rng.chance(300) };
    let options = &worker.options;
    let mut lock = Command::new(&options.paxoslease);
    lock.args(["lock", &plan.request.name, "--holder", &plan.holder]);
    lock.args(["--ttl", &format!("{}ms", plan.request.ttl_ms)]);
    lock.args(["-E", &HELD_ELSEWHERE.to_string()]);
    match plan.request.wait_ms {
        0 => lock.arg("--no-wait"),
        wait => lock.args(["--wait", &format!("{wait}ms")]),
    };
    for endpoint in &options.endpoints {
        lock.args(["--endpoint", endpoint]);
    }
    lock.arg("--").arg(std::env::current_exe()?).arg(options.part_of(command, attempt).to_json());
    lock.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    lock.spawn().with_context(|| format!("cannot run {}", options.paxoslease.display()))
}

/// Whether a command logs its belief.
struct PauseDetector {
    seen_at: Nanos,
    logs_at: Nanos,
}

impl PauseDetector {
    fn may_log(&mut self, at: Nanos) -> bool {
        if at - self.seen_at > nanos(PAUSE.0) {
            self.logs_at = at + nanos(PAUSE.1);
        }
        self.seen_at = at;
        at >= self.logs_at
    }
}

/// The command: works for `hold_ms`, or until `lock` ends it.
pub(super) fn command(
    options: &ClientOptions,
    attempt: u64,
    hold_ms: u64,
    stubborn: bool,
) -> Result<()> {
    let from = now();
    if stubborn {
        // SIGTERM does not end it then.
        signal_hook::flag::register(SIGTERM, Arc::new(AtomicBool::new(false)))?;
    }
    let name = std::env::var("PAXOSLEASE_NAME").context("lock did not say what is held")?;
    let fence = std::env::var("PAXOSLEASE_FENCE").context("lock gave no fence")?.parse()?;
    let mut belief = Belief {
        client: options.id.clone(),
        kind: Kind::Lock,
        name,
        attempt,
        fence,
        from,
        until: from,
        renewals: 0,
    };
    let mut log = Log::create(&options.log)?;
    log.extend(from, belief.clone())?;
    let folder = options.log.parent().context("the log has no folder")?;
    let mut store = Writer::connect(&store::socket(folder), &options.id)?;
    let ends_at = from + hold_ms * 1_000_000;
    let mut rng = Rng::new(options.seed, 2);
    let mut lives = rng.below(LIVES_PER_WRITE);
    let mut detector = PauseDetector { seen_at: from, logs_at: from };
    loop {
        let at = now();
        if detector.may_log(at) {
            belief.until = at;
            log.extend(at, belief.clone())?;
        }
        if at >= ends_at {
            break;
        }
        if lives.is_multiple_of(LIVES_PER_WRITE) {
            store.write(&belief.name, belief.fence)?;
        }
        lives += 1;
        clock::sleep(LIVES_EVERY);
    }
    let tenure = belief.tenure();
    Ok(log.write_at(belief.until, EventKind::Ended { tenure, why: EndReason::Released })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_pause_a_command_logs_nothing_for_a_while() {
        const MILLI: Nanos = 1_000_000;
        let mut detector = PauseDetector { seen_at: 0, logs_at: 0 };
        assert!(detector.may_log(2 * MILLI) && detector.may_log(20 * MILLI));
        assert!(!detector.may_log(1000 * MILLI), "it stood still for most of a second");
        let first = (1..60).find(|step| detector.may_log((1000 + 2 * step) * MILLI));
        assert_eq!(first, Some(50), "a tenth of a second later, if it is still there");
    }
}
