//! A scripted server and a manual clock. Loads that run to their end are in `transcript.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use paxoslease_wire::resp::{
    Protocol, Request, put_array, put_bulk, put_error, put_integer, put_simple,
};

use super::*;
use crate::plan::Dialect;
use crate::resp::Resp;

const MS: Duration = Duration::from_millis(1);

/// A server that keeps leases in a map, and the connections to it.
#[derive(Default)]
struct FakeServer {
    held: BTreeMap<Vec<u8>, Vec<u8>>,
    waiting: VecDeque<(usize, Vec<u8>)>,
    fence: i64,
    asked: Vec<String>,
    refusal: Option<String>,
}

impl FakeServer {
    /// Answers one request; a waiting acquire gets its answer later.
    fn answer(&mut self, link: usize, request: &Request<'_>, out: &mut [Vec<u8>]) {
        let arg = |index| request.arg(index).expect("an argument").to_vec();
        let words: Vec<String> = request.args().iter().map(|word| text_of(word)).collect();
        self.asked.push(words.join(" "));
        let reply = &mut out[link];
        match (&self.refusal, arg(0).as_slice()) {
            (_, b"HELLO") => {
                Protocol::Resp3.put_map(reply, 1);
                put_bulk(reply, b"server");
                put_bulk(reply, b"paxoslease");
            }
            (_, b"SCRIPT") => put_bulk(reply, &arg(2)),
            (Some(text), _) => put_error(reply, text),
            (None, b"LEASE.ACQUIRE") if !self.held.contains_key(&arg(1)) => {
                self.fence += 1;
                self.held.insert(arg(1), self.fence.to_string().into_bytes());
                grant(reply, self.fence);
            }
            (None, b"LEASE.ACQUIRE") => match words.iter().position(|word| word == "NOTIFY") {
                Some(place) => {
                    put_simple(reply, &"QUEUED");
                    self.waiting.push_back((link, arg(place + 1)));
                }
                None if words.iter().any(|word| word == "WAIT") => {
                    self.waiting.push_back((link, Vec::new()));
                }
                None => Protocol::Resp3.put_null(reply),
            },
            (None, b"LEASE.RENEW") if self.held.get(&arg(1)) == Some(&arg(2)) => {
                put_integer(reply, 15_000);
            }
            (None, b"LEASE.RENEW") => put_error(reply, &"NOTHELD it is over"),
            (None, b"SET") if self.held.contains_key(&arg(1)) => Protocol::Resp2.put_null(reply),
            (None, b"SET") => {
                self.held.insert(arg(1), arg(2));
                put_simple(reply, &"OK");
            }
            (None, b"LEASE.RELEASE") => {
                let is_held = self.held.get(&arg(1)) == Some(&arg(2));
                put_integer(reply, i64::from(is_held));
                if is_held {
                    self.held.remove(&arg(1));
                    self.hand_over(&arg(1), out);
                }
            }
            (None, b"EVALSHA") => {
                let is_held = self.held.get(&arg(3)) == Some(&arg(4));
                put_integer(reply, i64::from(is_held));
                if is_held && request.len() == 5 {
                    self.held.remove(&arg(3));
                }
            }
            (None, other) => panic!("unexpected request {}", text_of(other)),
        }
    }

    fn hand_over(&mut self, name: &[u8], out: &mut [Vec<u8>]) {
        let Some((link, id)) = self.waiting.pop_front() else { return };
        self.fence += 1;
        self.held.insert(name.to_vec(), self.fence.to_string().into_bytes());
        if id.is_empty() {
            grant(&mut out[link], self.fence);
        } else {
            Protocol::Resp3.put_push(&mut out[link], 5);
            put_bulk(&mut out[link], b"lease.granted");
            put_bulk(&mut out[link], &id);
            [self.fence, 15_000, 3].iter().for_each(|number| put_integer(&mut out[link], *number));
        }
    }
}

fn grant(out: &mut Vec<u8>, fence: i64) {
    put_array(out, 3);
    [fence, 15_000, 0].iter().for_each(|number| put_integer(out, *number));
}

/// A session and its server, with a latency of a millisecond.
struct ScriptedLoad {
    session: Session<Resp>,
    server: FakeServer,
    plan: Plan,
    now: Duration,
    /// Replies that have not arrived yet.
    replies: Vec<Vec<u8>>,
}

impl ScriptedLoad {
    fn new(workload: Workload, change: impl FnOnce(&mut Plan)) -> Self {
        let mut plan = Plan::new(["server:1"], workload);
        plan.warmup = Duration::ZERO;
        change(&mut plan);
        plan.check().expect("a load");
        let replies = vec![Vec::new(); plan.connections as usize];
        let session = Session::new(&plan, Resp::new(&plan));
        Self { session, server: FakeServer::default(), plan, now: Duration::ZERO, replies }
    }

    fn sized(workload: Workload, in_flight: u32, connections: u32, extent: Extent) -> Self {
        Self::new(workload, |plan| {
            (plan.in_flight, plan.connections, plan.extent) = (in_flight, connections, extent);
        })
    }

    /// Sends due requests to the server. Its replies do not arrive yet.
    fn request(&mut self) -> Result<(), Failure> {
        self.session.pump(self.now)?;
        while let Some(link) = self.session.outgoing().next_pending() {
            let asked = std::mem::take(self.session.outgoing().unsent(link));
            let mut rest = asked.as_slice();
            while let Some((request, len)) = Request::parse(rest).expect("well formed") {
                self.server.answer(link, &request, &mut self.replies);
                rest = &rest[len..];
            }
            assert!(rest.is_empty(), "only whole requests are sent");
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Failure> {
        for link in 0..self.replies.len() {
            let reply = std::mem::take(&mut self.replies[link]);
            let read = self.session.received(link, &reply, self.now)?;
            assert_eq!(read, reply.len(), "everything was whole");
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failure> {
        self.request()?;
        self.now += MS;
        self.deliver()
    }

    fn run(&mut self) -> Result<Report, Failure> {
        for _ in 0..100_000 {
            self.step()?;
            if self.session.is_done() {
                return Ok(self.session.report(&self.plan));
            }
        }
        panic!("a load without end: {:?}", self.session.phase);
    }

    fn asked(&self, what: &str) -> usize {
        self.server.asked.iter().filter(|request| request.starts_with(what)).count()
    }
}

/// The load of a command: a workload, then options of the plan and the server.
fn scripted(command: &str) -> ScriptedLoad {
    let options: BTreeMap<&str, &str> =
        command.split(' ').filter_map(|word| word.split_once('=')).collect();
    let number = |key: &str| options.get(key).map(|text| text.parse::<u32>().expect("a number"));
    let workload = match command.split(' ').next() {
        Some("pairs") => Workload::Pairs,
        Some("renew") => Workload::Renew { leases: number("leases").expect("leases") },
        Some("handover") => Workload::Handover,
        Some("mixed") => Workload::Mixed { hot_names: 2, hot_share: 0.25 },
        Some("fill") => Workload::Fill,
        other => panic!("not a workload: {other:?}"),
    };
    let mut load = ScriptedLoad::new(workload, |plan| {
        if options.get("dialect") == Some(&"redis") {
            plan.dialect = Dialect::Redis;
        }
        plan.in_flight = number("in-flight").unwrap_or(plan.in_flight);
        plan.connections = number("connections").unwrap_or(plan.connections);
        plan.warmup = MS * number("warmup").unwrap_or(0);
        plan.rate = number("rate").map(f64::from);
        plan.extent = match number("lasting") {
            Some(millis) => Extent::Lasting(MS * millis),
            None => Extent::Count(number("count").expect("count").into()),
        };
    });
    load.server.refusal = options.get("refusal").map(|text| text.replace('-', " "));
    if let Some(name) = options.get("held") {
        load.server.held.insert(name.as_bytes().to_vec(), b"1".to_vec());
    }
    load
}

/// Runs a load to its end: its report, what the server was asked, and what it holds then.
fn played(command: &str) -> String {
    let mut load = scripted(command);
    let report = match load.run() {
        Ok(report) => report,
        Err(failure) => return format!("{failure}"),
    };
    let Report { operations, held, errors, last_error, behind, seconds, .. } = &report;
    let mut text =
        format!("{operations} operations, {held} held, {behind} behind in {seconds:.3} s\n");
    text +=
        &format!("{:.0} per second, errors {errors:?}, last {last_error:?}\n", report.per_second);
    for (kind, latency) in &report.latency {
        let [p50, max] = [latency.p50_us, latency.max_us].map(|micros| micros / 1e3);
        text += &format!("{} x {kind}: p50 {p50:.1} ms, longest {max:.1} ms\n", latency.count);
    }
    let whole = report.whole_nanos.max() as f64 / 1e6;
    text += &format!("whole: {whole:.1} ms, longest gap {:.1} ms\n", report.longest_gap_ms);
    text += &report.shares.map(|shares| format!("{shares:?}\n")).unwrap_or_default();
    // The first request of each kind, which has its number of words.
    let mut asked: BTreeMap<(&str, usize), (usize, &str)> = BTreeMap::new();
    for request in &load.server.asked {
        let words: Vec<&str> = request.split(' ').collect();
        asked.entry((words[0], words.len())).or_insert((0, request)).0 += 1;
    }
    asked.values().for_each(|(count, first)| text += &format!("asked {count} x {first}\n"));
    let names = load.server.asked.iter().filter_map(|request| request.split(' ').nth(1));
    let names: BTreeSet<&str> = names.filter(|name| name.starts_with("load/")).collect();
    let hot =
        load.asked("LEASE.ACQUIRE load/000000000") + load.asked("LEASE.ACQUIRE load/000000001");
    let (left, waiting) = (load.server.held.len(), load.server.waiting.len());
    text + &format!(
        "{} names, {hot} acquires of the first two; {left} held, {waiting} waiting",
        names.len()
    )
}

#[test]
fn loads_that_run_to_their_end_have_these_reports() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session/transcript.txt");
    paxoslease_rig::check_transcript(&path, played);
}

#[test]
fn answers_may_come_in_pieces() {
    let mut load = ScriptedLoad::sized(Workload::Pairs, 1, 1, Extent::Count(1));
    load.step().expect("greeted");
    load.request().expect("asked");
    let reply = std::mem::take(&mut load.replies[0]);
    for end in 0..reply.len() {
        assert_eq!(load.session.received(0, &reply[..end], load.now), Ok(0), "{end}");
    }
    assert_eq!(load.session.received(0, &reply, load.now), Ok(reply.len()));
}

#[test]
fn with_a_rate_latency_counts_from_when_a_request_was_due() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| {
        (plan.in_flight, plan.connections) = (1, 1);
        (plan.rate, plan.extent) = (Some(1000.0), Extent::Count(4));
    });
    load.step().expect("greeted");
    load.request().expect("the first is due at once");
    // The server hangs for ten milliseconds, while other operations become due.
    load.now += 10 * MS;
    load.deliver().expect("granted");
    let report = load.run().expect("a willing server");
    assert_eq!(report.operations, 4);
    // 10 ms for the first one. The others were due 1, 2 and 3 ms later and waited for it and for
    // each other: 11, 12, 13 ms, not the 1 ms that each took once it was sent.
    let acquire = report.latency["acquire"];
    assert!((acquire.p50_us / 11e3 - 1.0).abs() < 0.01, "{acquire:?}");
    assert!((acquire.max_us / 13e3 - 1.0).abs() < 0.01, "{acquire:?}");
}

#[test]
fn a_lease_that_is_lost_is_an_error_and_taken_anew() {
    let mut load = ScriptedLoad::sized(Workload::Renew { leases: 4 }, 4, 1, Extent::Count(40));
    while load.session.cursor < 4 {
        load.step().expect("a willing server");
    }
    load.server.held.clear();
    let report = load.run().expect("a willing server");
    assert_eq!(report.errors, BTreeMap::from([("NOTHELD".to_owned(), 4)]));
    assert_eq!(load.asked("LEASE.ACQUIRE"), 8);
    assert_eq!(report.operations, 40 - 4 - 4, "neither the losses nor the acquires are renewals");
}

#[test]
fn a_lost_connection_fails_its_requests_and_greets_again() {
    let mut load = ScriptedLoad::sized(Workload::Pairs, 8, 2, Extent::Count(100));
    load.step().expect("greeted");
    load.request().expect("asked");
    load.replies[1].clear();
    load.session.lost(1, load.now).expect("no harm");
    assert!(!load.session.protocol().is_greeted(1));
    let report = load.run().expect("a willing server");
    assert_eq!(report.errors, BTreeMap::from([("disconnected".to_owned(), 4)]));
    assert_eq!(report.operations, 96);
    assert_eq!(load.asked("HELLO"), 3);
}

#[test]
fn a_server_that_never_answers_ends_the_load() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |_| {});
    load.request().expect("asked");
    load.replies.iter_mut().for_each(Vec::clear);
    let silent_at = load.session.wake_at().expect("a timer");
    assert_eq!(silent_at, SILENCE_MAX);
    assert_eq!(load.session.pump(silent_at), Err(Failure::Silent));
}

#[test]
fn at_the_end_the_load_does_not_wait_long() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| plan.extent = Extent::Lasting(5 * MS));
    load.request().expect("greeted");
    while !load.session.is_draining() {
        load.now += MS;
        load.deliver().expect("a willing server");
        load.request().expect("a willing server");
    }
    let ends_at = load.session.wake_at().expect("there is an end");
    load.session.pump(ends_at).expect("it is the end");
    assert!(load.session.is_done());
    assert_eq!(load.session.report(&load.plan).unanswered, 64);
}

#[test]
fn what_no_server_says_ends_the_load() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |_| {});
    load.step().expect("greeted");
    let heard = |load: &mut ScriptedLoad, bytes: &[u8]| load.session.received(0, bytes, load.now);
    assert!(matches!(heard(&mut load, b"HTTP/1.1 400\r\n"), Err(Failure::Garbled(_))));
    assert!(matches!(heard(&mut load, b":1\r\n"), Err(Failure::Garbled(_))), "nothing was asked");
    load.request().expect("asked");
    assert!(matches!(heard(&mut load, b"+PONG\r\n"), Err(Failure::Garbled(_))));
}
