//! One minute of the load and of the HTTP clients, and the resources of the nodes at its end.

use std::fmt;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_bench::peers::{Ours, Service as _};
use paxoslease_load::{Extent, Latency, Plan, Workload, run};
use paxoslease_rig::Process;

use crate::http_clients::{self, HttpCounts};

const TTL: Duration = Duration::from_secs(10);
const HOT_NAMES: u32 = 16;
const HOT_SHARE: f64 = 0.1;
const CONNECTIONS: u32 = 12;

/// The rate of pairs and of renewals, the same in every minute. Each lease is renewed twice per
/// [`TTL`].
const PER_SECOND: f64 = 4000.0;
const LEASES: u32 = 20_000;

#[derive(Clone, Debug)]
pub(crate) struct Minute {
    /// From when an operation was due to its last answer.
    pub(crate) pairs: Latency,
    pub(crate) renewals: Latency,
    pub(crate) http: HttpCounts,
    /// Operations that failed or were never answered, and one of the errors.
    pub(crate) failures: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) nodes: Vec<Node>,
}

/// A node at the end of a minute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) rss: u64,
    /// The allocated part of `rss`; the rest is code, of which rare minutes load new pages.
    pub(crate) allocated: u64,
    /// Open files and sockets, after the clients have disconnected.
    pub(crate) files: usize,
    /// Processor time during the minute, in cores.
    pub(crate) cores: f64,
}

impl Minute {
    pub(crate) fn measure(cell: &Ours, span: Duration) -> Result<Self> {
        let plan = |workload, names: &str| Plan {
            rate: Some(PER_SECOND),
            names: names.to_owned(),
            extent: Extent::Lasting(span),
            ttl: TTL,
            warmup: Duration::ZERO,
            connections: CONNECTIONS,
            ..Plan::new(cell.endpoints(), workload)
        };
        let mixed = Workload::Mixed { hot_names: HOT_NAMES, hot_share: HOT_SHARE };
        let pairs = plan(mixed, "soak/pair/");
        let renewals = plan(Workload::Renew { leases: LEASES }, "soak/held/");
        let busy_before = busy(cell)?;
        let endpoints = cell.http_endpoints();
        let ([pairs, renewals], http) = thread::scope(|scope| {
            let loads =
                [&pairs, &renewals].map(|plan| scope.spawn(|| run(plan, &mut |_progress| {})));
            let http = scope.spawn(|| http_clients::run(&endpoints, span));
            let loads = loads.map(|load| load.join().expect("a load does not panic"));
            (loads, http.join().expect("HTTP clients do not panic"))
        });
        let (pairs, renewals, http) = (pairs?, renewals?, http?);
        ensure!(pairs.operations > 0 && renewals.operations > 0, "no pair or renewal succeeded");
        let busy_after = busy(cell)?;
        let nodes = cell.members().iter().zip(busy_before.iter().zip(&busy_after));
        let nodes = nodes
            .map(|(node, (before, after))| {
                let cores = (*after - *before).as_secs_f64() / span.as_secs_f64();
                let (rss, allocated) = (node.rss()?, node.allocated()?);
                Ok(Node { rss, allocated, files: node.open_files()?, cores })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            failures: [&pairs, &renewals]
                .iter()
                .map(|load| load.failures() + load.unanswered)
                .sum(),
            pairs: Latency::of(&pairs.whole_nanos),
            renewals: Latency::of(&renewals.whole_nanos),
            http,
            last_error: pairs.last_error.or(renewals.last_error),
            nodes,
        })
    }
}

fn busy(cell: &Ours) -> Result<Vec<Duration>> {
    cell.members().iter().map(Process::cpu).collect()
}

impl fmt::Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, renewals, failures, .. } = self;
        write!(f, "pairs p50 {:.0} us, p99 {:.0} us;", pairs.p50_us, pairs.p99_us)?;
        write!(f, " renewals p50 {:.0} us, p99 {:.0} us;", renewals.p50_us, renewals.p99_us)?;
        let mib = |node: &Node| format!("{:.1} ({:.2})", mib(node.rss), mib(node.allocated));
        let mib: Vec<String> = self.nodes.iter().map(mib).collect();
        let files: Vec<String> = self.nodes.iter().map(|node| node.files.to_string()).collect();
        let cores: Vec<String> = self.nodes.iter().map(|n| format!("{:.2}", n.cores)).collect();
        write!(f, " {} MiB, {} files, {} cores,", mib.join("/"), files.join("/"), cores.join("/"))?;
        write!(f, " {failures} failures")
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
