//! `paxoslease lock`: the command believes that it may run, and that belief ends with it.
//!
//! The worker runs `lock` again and again, and sometimes kills it. The command logs that it lives,
//! over and over, up to the instant it is killed at. `lock` promises to end it before the lease is
//! over, also if `lock` itself is stopped or killed. A command that did not run for a while, as on
//! a machine that stood still, says nothing for a moment: whoever ends it did not run either, and
//! until it does only the fence protects (T5). A release by `lock` is not logged as
//! confirmed: its exit code does not say whether there was still something to give back.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use paxoslease_rig::clock;
use paxoslease_sim::Rng;
use signal_hook::consts::SIGTERM;

use super::scene::{Ending, Scene, Wish};
use super::{Options, Part};
use crate::check::nanos;
use crate::log::{Belief, Deed, End, Kind, Log, Nanos, What, now};
use crate::store::{self, Writer};

/// How often the command says that it lives, and how often of these it writes.
const LIVES_EVERY: Duration = Duration::from_millis(2);
const LIVES_PER_WRITE: u64 = 8;

/// How long it must not have run to say nothing, and for how long it says nothing then.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// What `lock` ends with when somebody else holds it; no command of ours does.
const HELD_ELSEWHERE: u8 = 11;
const NO_QUORUM: i32 = 69;
const LOST: i32 = 75;

/// Runs commands under `lock`, for ever.
pub(super) fn work(scene: &mut Scene) -> Result<()> {
    loop {
        let wish = scene.ask()?;
        let asked_at = now();
        let mut lock = start(scene, &wish)?;
        if let Ending::Abandon(_) | Ending::Crash = wish.ending {
            // Anywhere from its start to the middle of what the command does.
            let long = wish.ask.ttl_ms + wish.hold.as_millis() as u64;
            let after = scene.rng.millis(0, long);
            clock::sleep(after);
            lock.kill()?;
            lock.wait()?;
            scene.failed(&wish.ask, Deed::Acquire, "killed")?;
            continue;
        }
        let status = lock.wait().context("cannot wait for lock")?;
        match status.code() {
            Some(0) => scene.rest(0, 50),
            Some(code) if code == i32::from(HELD_ELSEWHERE) => {
                scene.denied(&wish, asked_at, None)?;
            }
            Some(NO_QUORUM) => {
                scene.failed(&wish.ask, Deed::Acquire, "no quorum")?;
                scene.rest(20, 200);
            }
            Some(LOST) => scene.failed(&wish.ask, Deed::Renew, "lost")?,
            Some(code) if code > 128 => scene.failed(&wish.ask, Deed::Renew, status)?,
            _ => bail!("lock ended: {status}"),
        }
    }
}

fn start(scene: &mut Scene, wish: &Wish) -> Result<Child> {
    let options = &scene.options;
    let of_command = Options {
        attempt: wish.ask.attempt,
        hold_ms: wish.hold.as_millis() as u64,
        stubborn: scene.rng.chance(300),
        ..options.part_of(Part::Command, wish.ask.attempt)
    };
    let mut lock = Command::new(&options.paxoslease);
    lock.args(["lock", &wish.ask.name, "--holder", &wish.holder]);
    lock.args(["--ttl", &format!("{}ms", wish.ask.ttl_ms)]);
    lock.args(["-E", &HELD_ELSEWHERE.to_string()]);
    match wish.ask.wait_ms {
        0 => lock.arg("--no-wait"),
        wait => lock.args(["--wait", &format!("{wait}ms")]),
    };
    for endpoint in &options.endpoints {
        lock.args(["--endpoint", endpoint]);
    }
    lock.arg("--").arg(std::env::current_exe()?).args(of_command.arguments());
    lock.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    lock.spawn().with_context(|| format!("cannot run {}", options.paxoslease.display()))
}

/// Whether a command says that it lives.
struct Voice {
    /// When it ran last.
    seen_at: Nanos,
    speaks_at: Nanos,
}

impl Voice {
    fn may_speak(&mut self, at: Nanos) -> bool {
        if at - self.seen_at > nanos(PAUSE.0) {
            self.speaks_at = at + nanos(PAUSE.1);
        }
        self.seen_at = at;
        at >= self.speaks_at
    }
}

/// The command: works for as long as it was told to, or until it is ended.
pub(super) fn command(options: &Options) -> Result<()> {
    let from = now();
    if options.stubborn {
        // Asking is not enough then.
        signal_hook::flag::register(SIGTERM, Arc::new(AtomicBool::new(false)))?;
    }
    let name = std::env::var("PAXOSLEASE_NAME").context("lock did not say what is held")?;
    let fence = std::env::var("PAXOSLEASE_FENCE").context("lock gave no fence")?.parse()?;
    let mut belief = Belief {
        client: options.id.clone(),
        kind: Kind::Lock,
        name,
        attempt: options.attempt,
        fence,
        from,
        until: from,
        renewals: 0,
    };
    let mut log = Log::create(&options.log)?;
    log.extend(from, belief.clone())?;
    let folder = options.log.parent().context("the log has no folder")?;
    let mut store = Writer::connect(&store::socket(folder), &options.id)?;
    let ends_at = from + options.hold_ms * 1_000_000;
    let mut rng = Rng::new(options.seed, 2);
    let mut lives = rng.below(LIVES_PER_WRITE);
    let mut voice = Voice { seen_at: from, speaks_at: from };
    loop {
        let at = now();
        if voice.may_speak(at) {
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
    let Belief { client, name, attempt, fence, until, .. } = belief;
    log.write_at(until, What::Ended { client, name, attempt, fence, why: End::Released })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_did_not_run_is_silent_until_it_has_run_for_a_while() {
        const MILLI: Nanos = 1_000_000;
        let mut voice = Voice { seen_at: 0, speaks_at: 0 };
        assert!(voice.may_speak(2 * MILLI) && voice.may_speak(20 * MILLI));
        assert!(!voice.may_speak(1000 * MILLI), "it stood still for most of a second");
        let spoken = (1..60).find(|step| voice.may_speak((1000 + 2 * step) * MILLI));
        assert_eq!(spoken, Some(50), "a tenth of a second later, if it is still there");
    }
}
