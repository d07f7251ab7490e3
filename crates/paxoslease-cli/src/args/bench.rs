//! Options of `bench`. [`paxoslease_load::Plan::check`] checks whether they fit together.

use std::time::Duration;

use clap::ValueEnum;
use paxoslease_load::Dialect;
use paxoslease_node::parse_duration;

use super::trust::{CONNECTION, TrustArgs};

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/bench.txt"))]
pub(crate) struct BenchArgs {
    /// The workload
    #[arg(value_name = "WORKLOAD", value_enum, default_value_t = WorkloadKind::Pairs)]
    pub(crate) workload: WorkloadKind,

    /// A node of the cell; repeat it for more
    ///
    /// Commas separate nodes too. Connections use them in turn.
    #[arg(long = "endpoint", value_name = "HOST:PORT", env = "PAXOSLEASE_ENDPOINTS")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7400", help_heading = CONNECTION)]
    pub(crate) endpoints: Vec<String>,

    /// paxoslease, or redis
    ///
    /// The protocol of the server. With redis, SET NX PX and scripts that compare.
    #[arg(long, value_name = "NAME", default_value = "paxoslease", value_parser = parse_dialect)]
    pub(crate) dialect: Dialect,

    /// The password of a Redis server is the token
    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    /// Requests in flight [default: 64; handover: 16]
    ///
    /// For handover, how many clients there are.
    #[arg(long, value_name = "N")]
    pub(crate) inflight: Option<u32>,

    /// Connections that they share [default: 4]
    ///
    /// For handover, one for each client by default. With fewer, clients wait by NOTIFY.
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u32>,

    /// How long to run [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "count")]
    pub(crate) duration: Option<Duration>,

    /// Run this many operations instead
    ///
    /// Successful or not.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Operations per second
    ///
    /// Without it, an operation begins when another ends.
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<f64>,

    /// The ttl of the leases
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// Prefix of every name
    ///
    /// bench/ and a random number by default.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) names: Option<String>,

    /// Time before the measurement [default: 1s]
    ///
    /// With --count, 0s by default.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) warmup: Option<Duration>,

    /// For `renew`: how many leases [default: 10000]
    #[arg(long, value_name = "N")]
    pub(crate) leases: Option<u32>,

    /// For `mixed`: how many names are hot [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) hot_names: Option<u32>,

    /// For `mixed`: share of hot names [default: 0.1]
    ///
    /// The share of requests for hot names, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) hot_share: Option<f64>,

    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

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
