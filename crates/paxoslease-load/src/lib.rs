//! A load generator for lease services. It uses RESP for a PaxosLease cell, or for a Redis server
//! with the usual locks; a [`Protocol`] of the caller supports any other service. The engine is the
//! same for all of them, so that they can be compared.
//!
//! One thread, no allocation per request. Each slot has one request in flight. With a rate,
//! requests are due at fixed times, and latency counts from the due time: a server that stalls
//! cannot hide the requests that waited during the stall.
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
//! Not here: options, tables and progress bars, which belong to the program that runs a load, and
//! lease guards.
#![expect(missing_docs, reason = "an API for this repository: no comment repeats a name")]

mod arrivals;
mod counters;
mod error;
mod event_loop;
mod plan;
mod protocol;
mod report;
mod resp;
mod session;

pub use error::LoadError;
pub use event_loop::{run, run_with};
pub use plan::{Dialect, Extent, IN_FLIGHT_MAX, Plan, PlanError, Secret, Workload};
pub use protocol::{Connections, Failure, LeaseRequest, Names, Outcome, Outgoing, Protocol};
pub use report::{Latency, Progress, Report, Shares};
pub use resp::Resp;
pub use session::Session;
