//! What users see through client libraries: the same program on one Redis and on a cell, in turns,
//! one pair at a time and many. The programs are in `bench/clients`; that of the Rust client is a
//! subcommand of this one.

use std::env;
use std::path::absolute;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use paxoslease_bench::peers::{Ours, Redis, Service as _};
use paxoslease_client::Client;
use paxoslease_rig::clock::{now, process_time};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use super::ScalePlan;
use crate::figures::{Spread, rounded};
use crate::side::Side;

/// Pairs at a time.
pub(crate) const AT_ONCE: [u32; 2] = [1, 64];
/// The subcommand that calls [`run_rust_client`].
const SUBCOMMAND: &str = "client";
const PYTHON_LIBRARIES: &str = "target/clients/python";
const NODE_LIBRARIES: &str = "target/clients/node";
const SPAN: Duration = Duration::from_secs(1);
const QUICK_SPAN: Duration = Duration::from_millis(500);
const WARMUP: Duration = Duration::from_millis(300);
const TTL: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Library {
    RedisPy,
    Ioredis,
    Rust,
    Http,
}

/// One library on one service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientRow {
    pub(crate) library: Library,
    pub(crate) side: Side,
    /// Of the library, for people.
    pub(crate) version: String,
    /// At each of [`AT_ONCE`].
    pub(crate) loads: [ClientLoad; 2],
}

/// The figures of each round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ClientLoad {
    pub(crate) per_second: Vec<f64>,
    pub(crate) p50_us: Vec<f64>,
    /// Of the client, per pair.
    pub(crate) cpu_us: Vec<f64>,
}

/// The output of a program.
#[derive(Serialize, Deserialize)]
struct Output {
    version: String,
    /// Of every pair.
    latencies_us: Vec<f64>,
    cpu_us: f64,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<ClientRow>> {
    let (redis, ours) = (Redis::start::<1>()?, Ours::start(Side::Ours.settings_of_ours())?);
    let endpoint = |library, side| match (library, side) {
        (Library::Http, _) => ours.http_endpoints().swap_remove(0),
        (_, Side::Redis) => redis.endpoints().swap_remove(0),
        _ => ours.endpoints().swap_remove(0),
    };
    let rows = [
        (Library::RedisPy, Side::Redis),
        (Library::RedisPy, Side::Ours),
        (Library::Ioredis, Side::Redis),
        (Library::Ioredis, Side::Ours),
        (Library::Http, Side::Ours),
        (Library::Rust, Side::Ours),
    ];
    let mut rows: Vec<ClientRow> = rows
        .map(|(library, side)| {
            let (version, loads) = Default::default();
            ClientRow { library, side, version, loads }
        })
        .into();
    for round in 0..plan.pick(1, 3) {
        for turn in 0..rows.len() {
            // Every round begins with another one.
            let at = (round + turn) % rows.len();
            let row = &mut rows[at];
            eprintln!("{}: {:?}", row.side.title(), row.library);
            row.add(&endpoint(row.library, row.side), plan.pick(QUICK_SPAN, SPAN))?;
        }
    }
    Ok(rows)
}

impl ClientRow {
    fn add(&mut self, endpoint: &str, span: Duration) -> Result<()> {
        for (clients, load) in AT_ONCE.iter().zip(&mut self.loads) {
            let mut command = self.library.command()?;
            command.env("ENDPOINT", endpoint).env("CLIENTS", clients.to_string());
            command.env("SECONDS", span.as_secs_f64().to_string());
            let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
            let output = output.with_context(|| format!("cannot start {command:?}"))?;
            ensure!(output.status.success(), "{command:?} failed");
            let Output { version, latencies_us, cpu_us } = serde_json::from_slice(&output.stdout)?;
            let pairs = latencies_us.len() as f64;
            let p50_us = Spread::of(latencies_us).context("no pair succeeded")?.median;
            self.version = version;
            load.per_second.push(rounded(pairs / span.as_secs_f64()));
            load.p50_us.push(rounded(p50_us));
            load.cpu_us.push(rounded(cpu_us / pairs));
        }
        Ok(())
    }
}

impl Library {
    fn command(self) -> Result<Command> {
        let node = |protocol| {
            let mut command = Command::new("node");
            command.arg("bench/clients/node.mjs").env("PROTOCOL", protocol);
            command.env("NODE_LIBRARIES", absolute(NODE_LIBRARIES)?);
            Ok(command)
        };
        match self {
            Self::RedisPy => {
                let mut command = Command::new("python3");
                command.arg("bench/clients/redis_py.py").env("PYTHONPATH", PYTHON_LIBRARIES);
                Ok(command)
            }
            Self::Ioredis => node("redis"),
            Self::Http => node("http"),
            Self::Rust => {
                let mut command = Command::new(env::current_exe()?);
                command.arg(SUBCOMMAND);
                Ok(command)
            }
        }
    }
}

/// The program of the Rust client: tasks of one thread, over one connection.
pub(crate) fn run_rust_client() -> Result<()> {
    let client = Client::new(&env::var("ENDPOINT")?)?;
    let clients: u32 = env::var("CLIENTS")?.parse()?;
    let span = Duration::try_from_secs_f64(env::var("SECONDS")?.parse()?)?;
    let load = async |span: Duration| {
        let began_at = now();
        let one = async |number: u32| {
            let (name, mut latencies_us) = (format!("bench/{number}"), Vec::new());
            while began_at.elapsed() < span {
                let asked_at = now();
                client.try_acquire(&name, TTL).await?.release().await?;
                latencies_us.push(asked_at.elapsed().as_secs_f64() * 1e6);
            }
            anyhow::Ok(latencies_us)
        };
        anyhow::Ok(try_join_all((0..clients).map(one)).await?.concat())
    };
    let runtime = Builder::new_current_thread().build()?;
    runtime.block_on(load(WARMUP))?;
    let before = process_time();
    let latencies_us = runtime.block_on(load(span))?;
    let cpu_us = (process_time() - before).as_secs_f64() * 1e6;
    let version = format!("Rust client {}", env!("CARGO_PKG_VERSION"));
    println!("{}", serde_json::to_string(&Output { version, latencies_us, cpu_us })?);
    Ok(())
}
