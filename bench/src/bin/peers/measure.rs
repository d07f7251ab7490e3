//! Rounds and turns: who is put under which load when. Only one service is under load at a time,
//! every round begins with another, and those that would be busy on their own are stopped by
//! signal until it is their turn.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use paxoslease_bench::cores::Busy;
use paxoslease_bench::peers::{Service, check};
use paxoslease_rig::Process;
use paxoslease_rig::clock::{now, process_time, sleep};
use rustix::process::{Pid, Signal, kill_process};

use crate::case::{Case, What};
use crate::figures::{Described, Figures, Method, Turn};
use crate::progress::Progress;
use crate::side::Side;

/// A service that was stopped finds itself anew: connections, leaders, sessions.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_TURN: Duration = Duration::from_millis(300);
/// The first time on a JVM, so that what is compiled while it runs has been.
pub(crate) const SETTLE: Duration = Duration::from_secs(8);
pub(crate) const QUICK_SETTLE: Duration = Duration::from_secs(2);
/// Every other time of those that were stopped.
const RESETTLE: Duration = Duration::from_millis(600);
/// What is going to be asked, a little of each.
const SETTLE_CASES: [Case; 5] = [
    Case::new(What::Pairs, 64),
    Case::new(What::Pairs, 512),
    Case::new(What::OwnConnections, 64),
    Case::new(What::Handovers, 16),
    Case::new(What::Pairs, 1),
];

/// How much to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) span: Duration,
    pub(crate) warmup: Duration,
    /// Of a JVM, once.
    pub(crate) settle: Duration,
    pub(crate) cases: Vec<Case>,
}

/// A service that runs, or rests.
pub(crate) struct Running {
    side: Side,
    service: Box<dyn Service>,
    pub(crate) described: Described,
    /// Whether it was under load since it was started.
    is_settled: bool,
}

impl Running {
    /// Makes sure that it does what is going to be measured, and asks it who it is, before it may
    /// have to rest.
    pub(crate) fn new(side: Side, service: Box<dyn Service>) -> Result<Self> {
        check(&*service)?;
        let (version, settings) = (service.version()?, service.settings());
        let described = Described { side, version, settings };
        let running = Self { side, service, described, is_settled: false };
        running.rest()?;
        Ok(running)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if !self.side.is_restless() {
            return Ok(());
        }
        for member in self.service.members() {
            let pid = i32::try_from(member.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.context("no such process")?, signal)?;
        }
        Ok(())
    }

    fn rest(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it and puts it under load until all is well again.
    fn wake(&mut self, plan: &Plan) -> Result<()> {
        self.signal(Signal::CONT)?;
        let began_at = now();
        let mut left = self.settles_for(plan);
        self.is_settled = true;
        let mut cases = SETTLE_CASES.iter().cycle();
        while !left.is_zero() {
            let case = cases.next().expect("an endless round");
            let problem =
                match self.service.run(&case.load(SETTLE_TURN, Duration::ZERO), case.target()) {
                    Ok(loaded) if loaded.failures() == 0 && loaded.operations > 0 => {
                        left = left.saturating_sub(case.lasts(SETTLE_TURN));
                        continue;
                    }
                    Ok(loaded) => loaded.last_error.unwrap_or_default(),
                    Err(error) => format!("{error:#}"),
                };
            if began_at.elapsed() > SETTLE_MAX {
                let problem = anyhow!(problem);
                return Err(problem.context(format!("{}: nobody serves", self.side.title())));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// How long it is put under load before anything counts.
    fn settles_for(&self, plan: &Plan) -> Duration {
        match (self.side.is_restless(), self.is_settled) {
            (true, false) if self.side.is_on_jvm() => plan.settle,
            (false, true) => Duration::ZERO,
            (true, _) | (false, false) => RESETTLE,
        }
    }

    /// One turn: the load, and what the processes ran meanwhile.
    fn turn(&self, case: Case, round: u32, plan: &Plan) -> Result<Turn> {
        // Both sides alike: nobody has to be woken, whoever is asked.
        let awake = if case.what == What::Awake { Busy::on_all()? } else { Vec::new() };
        let load = case.load(plan.span, plan.warmup);
        let before = [self.cpu()?, process_time()];
        let loaded = self.service.run(&load, case.target())?;
        let after = [self.cpu()?, process_time()];
        awake.iter().try_for_each(Busy::check)?;
        // What ran before anything counted took its share, too.
        let counted = case.lasts(plan.span).as_secs_f64();
        let share = counted / plan.turn(case).as_secs_f64();
        let cpu = std::array::from_fn(|of| (after[of] - before[of]).mul_f64(share));
        Ok(Turn::new(round, &loaded, cpu))
    }

    fn cpu(&self) -> Result<Duration> {
        self.service.members().iter().map(Process::cpu).sum()
    }
}

/// Those that take turns for every load; one that has to be continued first is alone.
fn groups(services: Vec<Running>) -> Vec<Vec<Running>> {
    let (restless, calm): (Vec<_>, Vec<_>) =
        services.into_iter().partition(|running| running.side.is_restless());
    let alone = restless.into_iter().map(|running| vec![running]);
    std::iter::once(calm).chain(alone).filter(|group| !group.is_empty()).collect()
}

impl Plan {
    pub(crate) fn method(&self) -> Method {
        Method {
            rounds: self.rounds,
            turn_ms: self.span.as_millis() as u64,
            warmup_ms: self.warmup.as_millis() as u64,
        }
    }

    /// How long a turn takes, without what goes before it.
    fn turn(&self, case: Case) -> Duration {
        self.warmup + case.lasts(self.span)
    }

    /// How long all turns take together.
    pub(crate) fn expected(&self, sides: &[Side]) -> Duration {
        let of = |side: &Side| -> Duration {
            let cases = self.cases.iter().filter(|case| side.takes(**case));
            cases.map(|case| self.turn(*case)).sum()
        };
        let settling = sides.iter().filter(|side| side.is_on_jvm()).count() as u32 * self.settle;
        self.rounds * sides.iter().map(of).sum::<Duration>() + settling
    }
}

/// Measures everything, into `figures`.
pub(crate) fn run(
    plan: &Plan,
    services: Vec<Running>,
    figures: &mut Figures,
    progress: &Progress,
) -> Result<()> {
    let mut groups = groups(services);
    for round in 0..plan.rounds {
        for group in &mut groups {
            if let Err(error) = wake(group, plan, progress) {
                progress.note(&format!("{error:#}"));
                figures.troubles.push(format!("round {}: {error}", round + 1));
                continue;
            }
            for case in &plan.cases {
                for turn in 0..group.len() {
                    let running = &group[(round as usize + turn) % group.len()];
                    if !running.side.takes(*case) {
                        continue;
                    }
                    progress.at(&format!("{}: {case}", running.side.title()));
                    match running.turn(*case, round, plan) {
                        Ok(turn) => figures.add(running.side, *case, turn),
                        Err(error) => {
                            let turn = format!("{}: {case}", running.side.title());
                            progress.note(&format!("{turn}: {error:#}"));
                            figures.troubles.push(format!("round {}, {turn}", round + 1));
                        }
                    }
                    progress.done(plan.turn(*case));
                }
            }
            group.iter().try_for_each(Running::rest)?;
        }
        // Every round begins with another side, so that none always follows the same.
        groups.rotate_left(1);
    }
    Ok(())
}

fn wake(group: &mut [Running], plan: &Plan, progress: &Progress) -> Result<()> {
    for running in group {
        progress.at(&format!("{}: getting ready", running.side.title()));
        running.wake(plan)?;
    }
    Ok(())
}
