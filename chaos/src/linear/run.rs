//! One run: a service, the clients on it, faults meanwhile, and the judge of every retired key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::classify::classify;
use super::clients::Clients;
use super::history::{Operation, Outcome, text};
use super::judge::{Verdict, judge};
use super::keys::{Dialect, KeyPlan, Keys, Life, Retired};
use super::model::{Class, Service};
use super::service::Running;
use super::shrink::shrink;
use crate::log::now;

/// Retired keys that wait for the judge. With more, clients wait.
const QUEUE_MAX: usize = 512;
/// The most histories that are shown for each combination of classes.
const SHOWN_MAX: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Faults {
    None,
    /// `kill -9` of one node after another.
    Kill,
    /// SIGSTOP of one node after another.
    Pause,
}

#[derive(Clone, Debug)]
pub struct LinearOptions {
    pub seed: u64,
    pub len: Duration,
    /// At most this many operations.
    pub operations: u64,
    pub clients: u16,
    pub keys: usize,
    pub operations_per_key: usize,
    pub max_lease: Duration,
    /// Whether leases may be longer than the longest of the cell, or endless.
    pub beyond: bool,
    pub faults: Faults,
    /// `None` for a Redis server, the control.
    pub paxoslease: Option<PathBuf>,
    /// The folder of a cell.
    pub folder: PathBuf,
}

/// What the judge found.
#[derive(Debug, Default)]
pub struct Findings {
    pub keys: u64,
    pub operations: u64,
    pub grants: u64,
    pub unknown: u64,
    pub undecided: u64,
    /// Keys that are not linearizable, by what explains them.
    pub bad: BTreeMap<Vec<Class>, u64>,
    /// Those keys, by their life and dialect; beside all keys of these.
    pub kinds: BTreeMap<(Life, Dialect), (u64, u64)>,
    /// Readable parts of some of them.
    pub shown: Vec<String>,
    /// What the clients saw instead of replies, and how often.
    pub errors: BTreeMap<String, u64>,
    pub faults: u64,
    pub bugs: Vec<String>,
}

impl Findings {
    pub fn not_linearizable(&self) -> u64 {
        self.bad.values().sum()
    }

    /// Whether every key is linearizable and no node did anything wrong. A run without operations
    /// shows nothing.
    pub fn is_clean(&self) -> bool {
        let is_right = self.bad.is_empty() && self.undecided == 0;
        is_right && self.bugs.is_empty() && self.operations > 0
    }

    fn add(&mut self, key: &Retired, service: Service) {
        let operations = &key.operations;
        self.keys += 1;
        self.operations += operations.len() as u64;
        let is_unknown = |one: &&Operation| matches!(one.outcome, Outcome::Unknown(_));
        self.unknown += operations.iter().filter(is_unknown).count() as u64;
        let granted = operations.iter().filter(|one| one.is_granted() && one.command.acquires());
        self.grants += granted.count() as u64;
        let kind = self.kinds.entry((key.life, key.dialect)).or_default();
        kind.1 += 1;
        match judge(operations, service, &[]) {
            Verdict::Linearizable => {}
            Verdict::Undecided => self.undecided += 1,
            Verdict::NotLinearizable => {
                kind.0 += 1;
                let classes = classify(operations, service);
                let count = self.bad.entry(classes.clone()).or_default();
                *count += 1;
                if *count <= SHOWN_MAX {
                    self.shown.push(shown(key, &classes, service));
                }
            }
        }
    }
}

fn shown(key: &Retired, classes: &[Class], service: Service) -> String {
    let titles: Vec<&str> = classes.iter().map(|class| class.title()).collect();
    let part = shrink(&key.operations, service, classes);
    let (name, all) = (&key.name, key.operations.len());
    format!(
        "{name}, {:?} leases, {:?} dialect: {}; {} of {all} operations\n{}",
        key.life,
        key.dialect,
        if titles.is_empty() { "unexplained".to_owned() } else { titles.join(" and ") },
        part.len(),
        text(&part)
    )
}

/// Runs the workload, and judges it meanwhile.
pub fn run(options: &LinearOptions) -> Result<Findings> {
    let mut running = Running::start(options)?;
    running.await_ready()?;
    let model = running.model();
    let (retired, waiting) = sync_channel(QUEUE_MAX);
    thread::scope(|scope| {
        let judge = scope.spawn(move || judged(&waiting, model));
        let worked = work(options, &mut running, retired);
        let mut findings = judge.join().expect("the judge does not panic");
        for error in worked? {
            *findings.errors.entry(error).or_default() += 1;
        }
        findings.faults = running.faults;
        findings.bugs = running.bugs()?;
        Ok(findings)
    })
}

fn judged(waiting: &Receiver<Retired>, service: Service) -> Findings {
    let mut findings = Findings::default();
    for key in waiting {
        findings.add(&key, service);
    }
    findings
}

/// Runs the clients and the faults, and returns the errors that the clients saw.
fn work(
    options: &LinearOptions,
    running: &mut Running,
    retired: SyncSender<Retired>,
) -> Result<Vec<String>> {
    let keys = Keys::new(key_plan(options), options.seed, retired);
    let endpoints = running.endpoints.clone();
    let ends_at = now() + options.len.as_nanos() as u64;
    let clients = Clients {
        keys: &keys,
        endpoints: &endpoints,
        max_lease: options.max_lease,
        overwrites: running.model().overwrites,
        seed: options.seed,
        ends_at,
        left: AtomicU64::new(options.operations),
        values: AtomicU64::new(1),
    };
    thread::scope(|scope| {
        let clients = &clients;
        let threads: Vec<_> =
            (0..options.clients).map(|id| scope.spawn(move || clients.run(id))).collect();
        let is_over = || threads.iter().all(ScopedJoinHandle::is_finished);
        let disturbed = running.disturb(options, ends_at, &is_over);
        let ended = threads.into_iter().map(|thread| thread.join().expect("no client panics"));
        let errors = ended.flatten().collect();
        clients.keys.retire_all();
        disturbed.map(|()| errors)
    })
}

fn key_plan(options: &LinearOptions) -> KeyPlan {
    let is_redis = options.paxoslease.is_none();
    // Keys whose leases expire rest most of the time, so there are more of them.
    let long = if options.beyond { [Life::Long, Life::Beyond] } else { [Life::Long; 2] };
    let lives = [long.to_vec(), vec![Life::Short; 4]].concat();
    let native = [Dialect::Native, Dialect::Both];
    let dialects = [Dialect::Redis].into_iter().chain(native.into_iter().filter(|_| !is_redis));
    KeyPlan {
        count: options.keys,
        operations: options.operations_per_key,
        lives,
        dialects: dialects.collect(),
    }
}
