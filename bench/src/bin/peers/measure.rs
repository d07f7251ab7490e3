//! Rounds and turns. One service is under load at a time, every round begins with another one, and
//! services that are busy without a load are stopped by signal between their turns.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use paxoslease_bench::cores::Busy;
use paxoslease_bench::peers::{Service, check};
use paxoslease_rig::Process;
use paxoslease_rig::clock::{now, process_time, sleep};
use rustix::process::Signal;

use crate::case::{Case, What};
use crate::figures::{Described, Figures, Method, Turn};
use crate::side::Side;

/// How long a continued service may take for connections, leaders and sessions.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_TURN: Duration = Duration::from_millis(300);
/// The first load on a JVM, for its compiler.
pub(crate) const SETTLE: Duration = Duration::from_secs(8);
pub(crate) const QUICK_SETTLE: Duration = Duration::from_secs(2);
/// Any later load on a continued service.
const RESETTLE: Duration = Duration::from_millis(600);
const SETTLE_CASES: [Case; 5] = [
    Case::new(What::Pairs, 64),
    Case::new(What::Pairs, 512),
    Case::new(What::OwnConnections, 64),
    Case::new(What::Handovers, 16),
    Case::new(What::Pairs, 1),
];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) span: Duration,
    pub(crate) warmup: Duration,
    pub(crate) settle: Duration,
    pub(crate) cases: Vec<Case>,
}

/// A started service, which is stopped by signal between its turns if it is restless.
pub(crate) struct Running {
    side: Side,
    service: Box<dyn Service>,
    pub(crate) described: Described,
    is_settled: bool,
}

impl Running {
    /// Checks that the service works, reads its version, and stops it if it is restless.
    pub(crate) fn new(side: Side, service: Box<dyn Service>) -> Result<Self> {
        check(&*service).with_context(|| format!("{} does not work", side.title()))?;
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
        self.service.members().iter().try_for_each(|member| member.signal(signal))
    }

    fn rest(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it, and puts it under load until it works without failures.
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
                return Err(problem.context(format!("{}: it does not serve", self.side.title())));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// How long it runs under load before the measurement.
    fn settles_for(&self, plan: &Plan) -> Duration {
        match (self.side.is_restless(), self.is_settled) {
            (true, false) if self.side.is_on_jvm() => plan.settle,
            (false, true) => Duration::ZERO,
            (true, _) | (false, false) => RESETTLE,
        }
    }

    /// Measures a load, and the processor time of the service meanwhile.
    fn turn(&self, case: Case, round: u32, plan: &Plan) -> Result<Turn> {
        // No core sleeps, so no service has to wake one.
        let awake = if case.what == What::Awake { Busy::on_all()? } else { Vec::new() };
        let load = case.load(plan.span, plan.warmup);
        let before = [self.cpu()?, process_time()];
        let loaded = self.service.run(&load, case.target())?;
        let after = [self.cpu()?, process_time()];
        awake.iter().try_for_each(Busy::check)?;
        // The processor time includes the warm-up; this is the share of the measured time.
        let counted = case.lasts(plan.span).as_secs_f64();
        let share = counted / plan.turn(case).as_secs_f64();
        let cpu = std::array::from_fn(|of| (after[of] - before[of]).mul_f64(share));
        Ok(Turn::new(round, &loaded, cpu))
    }

    fn cpu(&self) -> Result<Duration> {
        self.service.members().iter().map(Process::cpu).sum()
    }
}

/// Services of a group take turns for every load; a restless service is a group of its own.
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

    fn turn(&self, case: Case) -> Duration {
        self.warmup + case.lasts(self.span)
    }
}

pub(crate) fn run(plan: &Plan, services: Vec<Running>, figures: &mut Figures) -> Result<()> {
    let mut groups = groups(services);
    for round in 0..plan.rounds {
        for group in &mut groups {
            if let Err(error) = wake(group, plan) {
                eprintln!("{error:#}");
                figures.troubles.push(format!("round {}: {error}", round + 1));
                continue;
            }
            for case in &plan.cases {
                for turn in 0..group.len() {
                    let running = &group[(round as usize + turn) % group.len()];
                    if !running.side.takes(*case) {
                        continue;
                    }
                    eprintln!("{}: {case}", running.side.title());
                    match running.turn(*case, round, plan) {
                        Ok(turn) => figures.add(running.side, *case, turn),
                        Err(error) => {
                            let turn = format!("{}: {case}", running.side.title());
                            eprintln!("{turn}: {error:#}");
                            figures.troubles.push(format!("round {}, {turn}", round + 1));
                        }
                    }
                }
            }
            group.iter().try_for_each(Running::rest)?;
        }
        // Every round begins with another group, so that none always follows the same one.
        groups.rotate_left(1);
    }
    Ok(())
}

fn wake(group: &mut [Running], plan: &Plan) -> Result<()> {
    for running in group {
        eprintln!("{}: getting ready", running.side.title());
        running.wake(plan)?;
    }
    Ok(())
}
