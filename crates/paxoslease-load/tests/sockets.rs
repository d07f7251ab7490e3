//! Loads over real sockets. They end by a count, so no clock decides what must be true.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use paxoslease_load::{Extent, LoadError, Plan, Report, Workload, run};

use crate::support::server;

/// No process listens on port 1.
const NOWHERE: &str = "127.0.0.1:1";

fn willing() -> String {
    server(usize::MAX, &Arc::default())
}

fn plan(endpoints: &[&str], workload: Workload, count: u64) -> Plan {
    let mut plan = Plan::new(endpoints.iter().copied(), workload);
    (plan.extent, plan.warmup) = (Extent::Count(count), Duration::ZERO);
    plan
}

fn outcome(plan: &Plan) -> Result<Report, LoadError> {
    run(plan, &mut |_| {})
}

#[test]
fn connections_go_to_every_endpoint_in_turn() {
    let asked = [Arc::default(), Arc::default()];
    let addresses = asked.each_ref().map(|asked| server(usize::MAX, asked));
    let plan = plan(&addresses.each_ref().map(String::as_str), Workload::Pairs, 10_000);
    let report = outcome(&plan).expect("both answer");
    assert_eq!((report.operations, report.failures()), (10_000, 0));
    let requests = asked.map(|asked| asked.load(Ordering::SeqCst));
    assert_eq!(requests[0] + requests[1], 4 + 20_000, "a greeting for each connection");
    assert!(requests.iter().all(|requests| *requests > 1000), "{requests:?}");
}

#[test]
fn more_than_a_buffer_at_once_is_sent_and_heard_in_the_end() {
    let address = willing();
    let mut plan = plan(&[&address], Workload::Pairs, 100_000);
    (plan.connections, plan.in_flight) = (1, 20_000);
    assert_eq!(outcome(&plan).expect("it answers").operations, 100_000);
}

#[test]
fn operations_at_a_rate_are_all_begun() {
    let address = willing();
    let mut plan = plan(&[&address], Workload::Pairs, 200);
    plan.rate = Some(50_000.0);
    let report = outcome(&plan).expect("it answers");
    assert_eq!((report.operations, report.latency["acquire"].count), (200, 200));
}

#[test]
fn a_dead_endpoint_costs_nothing_where_another_lives() {
    let address = willing();
    let plan = plan(&[NOWHERE, &address], Workload::Pairs, 1000);
    let report = outcome(&plan).expect("one answers");
    assert_eq!((report.operations, report.failures()), (1000, 0));
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let address = server(500, &Arc::default());
    let plan = plan(&[&address], Workload::Pairs, 2000);
    let report = outcome(&plan).expect("it takes connections");
    assert_eq!(report.operations + report.failures(), 2000);
    assert!(report.errors.contains_key("disconnected"), "{:?}", report.errors);
    assert!(report.operations > 0);
}

#[test]
fn a_dead_cell_is_told_from_a_wrong_question() {
    let dead = outcome(&plan(&[NOWHERE], Workload::Pairs, 1)).expect_err("no server");
    assert!(dead.is_unavailable(), "{dead:?}");
    assert!(dead.to_string().starts_with(&format!("cannot reach {NOWHERE}: ")), "{dead}");
    let hangs_up = server(0, &Arc::default());
    let error = outcome(&plan(&[&hangs_up], Workload::Pairs, 1)).expect_err("it hangs up");
    assert!(matches!(error, LoadError::Unreachable { .. }), "{error:?}");
    let wrong = outcome(&plan(&["no port"], Workload::Pairs, 1)).expect_err("it leads nowhere");
    assert!(!wrong.is_unavailable(), "{wrong:?}");
}
