//! A load generator for lease services. It speaks RESP to a PaxosLease cell, or to a Redis server
//! that hands out locks the usual way; a [`Protocol`] of the caller's makes it speak to any other
//! service. The engine is the same for all of them, so that they can be compared.
//!
//! One thread, no allocation per request. A turn reads what a connection has, answers it from
//! slots that each have one request under way, and writes once. With a rate, requests are due at
//! fixed times whatever became of those before, and latency counts from when a request was due:
//! a server that stalls cannot hide what waited behind the stall.
//!
//! ```no_run
//! use std::time::Duration;
//! use paxoslease_load::{Extent, Plan, Workload, run};
//!
//! let mut plan = Plan::new(["127.0.0.1:7400"], Workload::Pairs);
//! plan.in_flight = 512;
//! plan.extent = Extent::Lasting(Duration::from_secs(3));
//! let report = run(&plan, &mut |_progress| {})?;
//! println!("{:.0} pairs/s", report.per_second);
//! # Ok::<(), paxoslease_load::LoadError>(())
//! ```
//!
//! Not here: options, tables and progress bars, which belong to the program that runs a load; and
//! lease guards, since a load cares about answers and not about what they protect.

mod error;
mod event_loop;
mod pace;
mod plan;
mod protocol;
mod report;
mod resp;
mod session;
mod tally;

pub use error::LoadError;
pub use event_loop::{run, run_with};
pub use plan::{Dialect, Extent, IN_FLIGHT_MAX, Plan, PlanError, Secret, Workload};
pub use protocol::{Ask, Connections, Failure, Names, Outcome, Outgoing, Protocol};
pub use report::{Latency, Progress, Report, Shares};
pub use resp::RedisLock;
pub use session::Session;
