//! Options of `bench`. [`paxoslease_load::Plan::check`] checks whether they fit together.

use std::time::Duration;

use clap::ValueEnum;
use paxoslease_load::Dialect;
use paxoslease_node::parse_duration;

use super::trust::TrustArgs;

/// Options of `bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/bench.txt"))]
pub(crate) struct BenchArgs {
    /// The workload
    #[arg(value_name = "WORKLOAD", value_enum, default_value_t = WorkloadKind::Pairs)]
    pub(crate) workload: WorkloadKind,

    /// A node to connect to; several are used in turn
    #[arg(long = "endpoint", value_name = "HOST:PORT", env = "PAXOSLEASE_ENDPOINTS")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7400")]
    pub(crate) endpoints: Vec<String>,

    /// The protocol of the server: paxoslease, or redis with SET NX PX and scripts that compare
    #[arg(long, value_name = "NAME", default_value = "paxoslease", value_parser = parse_dialect)]
    pub(crate) dialect: Dialect,

    /// The password of a Redis server is the token
    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    /// How many requests are in flight; for `handover`, how many clients there are [default: 64;
    /// for `handover`: 16]
    #[arg(long, value_name = "N")]
    pub(crate) inflight: Option<u32>,

    /// How many connections they share [default: 4; for `handover`: one for each client; with
    /// fewer, clients wait by NOTIFY]
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u32>,

    /// How long to run [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "count")]
    pub(crate) duration: Option<Duration>,

    /// Run this many operations instead, successful or not
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Operations per second; without it, an operation begins when another ends
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<f64>,

    /// The ttl of the leases
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// The prefix of every name [default: bench/ and a random number]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) names: Option<String>,

    /// How long to run before the measurement begins [default: 1s; with `--count`: 0s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) warmup: Option<Duration>,

    /// For `renew`: how many leases [default: 10000]
    #[arg(long, value_name = "N")]
    pub(crate) leases: Option<u32>,

    /// For `mixed`: how many names are hot [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) hot_names: Option<u32>,

    /// For `mixed`: the share of requests for hot names, 0 to 1 [default: 0.1]
    #[arg(long, value_name = "SHARE")]
    pub(crate) hot_share: Option<f64>,

    /// Print one line of JSON on stdout, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// The workloads.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkloadKind {
    /// Acquire and release, each operation with a name of its own
    Pairs,
    /// Renew leases that are held
    Renew,
    /// Many clients wait for one name and release it at once
    Handover,
    /// Pairs of acquire and release, a share of them for few names
    Mixed,
}

fn parse_dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "paxoslease" => Ok(Dialect::Paxoslease),
        "redis" => Ok(Dialect::Redis),
        _ => Err("expected paxoslease or redis".to_owned()),
    }
}
