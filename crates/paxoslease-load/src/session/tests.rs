//! A scripted server and a manual clock. Loads that run to their end are in `transcript.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use paxoslease_wire::resp::{
    Protocol, Request, put_array, put_bulk, put_error, put_integer, put_simple,
};

use super::*;
use crate::plan::{Dialect, PlanError};
use crate::report::Latency;
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
    fn new(plan: Plan) -> Self {
        let replies = vec![Vec::new(); plan.connections as usize];
        let session = Session::new(&plan, Resp::new(&plan));
        Self { session, server: FakeServer::default(), plan, now: Duration::ZERO, replies }
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

    fn run(&mut self) -> Result<(), Failure> {
        for _ in 0..100_000 {
            self.step()?;
            if self.session.is_done() {
                return Ok(());
            }
        }
        panic!("a load without end: {:?}", self.session.phase);
    }

    /// One step of a script, with its number if it has one.
    fn perform(&mut self, step: &str) -> Result<(), Failure> {
        let (verb, rest) = step.split_once(':').unwrap_or((step, "0"));
        let number = || rest.parse::<u32>().expect("a number");
        match verb {
            "step" => (0..number().max(1)).try_for_each(|_| self.step()),
            "request" => self.request(),
            "deliver" => self.deliver(),
            "run" => self.run(),
            "check" => Ok(()),
            "pause" => {
                self.now += MS * number();
                Ok(())
            }
            // The server is silent: its replies so far are lost.
            "mute" => {
                self.replies.iter_mut().for_each(Vec::clear);
                Ok(())
            }
            "lose" => {
                self.replies[number() as usize].clear();
                self.session.lost(number() as usize, self.now)
            }
            "expire" => {
                self.server.held.clear();
                Ok(())
            }
            "wake" => {
                self.now = self.session.wake_at().expect("a timer");
                self.session.pump(self.now)
            }
            "hear" => {
                self.session.received(0, format!("{rest}\r\n").as_bytes(), self.now).map(drop)
            }
            _ => panic!("not a step: {step}"),
        }
    }

    fn asked(&self, what: &str) -> usize {
        self.server.asked.iter().filter(|request| request.starts_with(what)).count()
    }
}

/// The load of a command: a workload, then options of the plan and the server.
fn scripted(options: &BTreeMap<&str, &str>) -> Result<ScriptedLoad, PlanError> {
    let number = |key: &str| options.get(key).map(|text| text.parse::<u32>().expect("a number"));
    let share = options.get("hot-share").map_or(0.25, |text| text.parse().expect("a share"));
    let workload = match options["workload"] {
        "pairs" => Workload::Pairs,
        "renew" => Workload::Renew { leases: number("leases").expect("leases") },
        "handover" => Workload::Handover,
        "mixed" => {
            Workload::Mixed { hot_names: number("hot-names").unwrap_or(2), hot_share: share }
        }
        "fill" => Workload::Fill,
        other => panic!("not a workload: {other}"),
    };
    let mut plan = Plan::new(options.get("endpoint").unwrap_or(&"server:1").split(','), workload);
    plan.endpoints.retain(|endpoint| endpoint != "none");
    if options.get("dialect") == Some(&"redis") {
        plan.dialect = Dialect::Redis;
    }
    plan.in_flight = number("in-flight").unwrap_or(plan.in_flight);
    plan.connections = number("connections").unwrap_or(plan.connections);
    plan.warmup = MS * number("warmup").unwrap_or(0);
    plan.ttl = number("ttl").map_or(plan.ttl, |millis| MS * millis);
    plan.names = number("prefix").map_or(plan.names, |len| "x".repeat(len as usize));
    plan.rate = number("rate").map(f64::from);
    plan.extent = match number("count") {
        Some(count) => Extent::Count(count.into()),
        None => number("lasting").map_or(plan.extent, |millis| Extent::Lasting(MS * millis)),
    };
    plan.check()?;
    let mut load = ScriptedLoad::new(plan);
    load.server.refusal = options.get("refusal").map(|text| text.replace('-', " "));
    if let Some(name) = options.get("held") {
        load.server.held.insert(name.as_bytes().to_vec(), b"1".to_vec());
    }
    Ok(load)
}

/// Runs a load by the steps of its option `then`, or to its end: its report, what the server was
/// asked, and what it holds then.
fn played(command: &str) -> String {
    let words = command.split(' ').map(|word| word.split_once('=').unwrap_or(("workload", word)));
    let options: BTreeMap<&str, &str> = words.collect();
    let mut load = match scripted(&options) {
        Ok(load) => load,
        Err(error) => return error.to_string(),
    };
    let steps = options.get("then").unwrap_or(&"run").split(',');
    for step in steps {
        if let Err(failure) = load.perform(step) {
            return format!("after {:?}: {failure}", load.now);
        }
    }
    if !load.session.is_done() {
        return "valid".to_owned();
    }
    let report = load.session.report(&load.plan);
    let Report { unanswered, .. } = report;
    let Report { operations, held, errors, last_error, behind, seconds, .. } = &report;
    let mut text =
        format!("{operations} operations, {held} held, {behind} behind in {seconds:.3} s\n");
    text += &format!("{unanswered} unanswered\n");
    text +=
        &format!("{:.0} per second, errors {errors:?}, last {last_error:?}\n", report.per_second);
    for (kind, latency) in &report.latency {
        let Latency { count, p50_us, p99_9_us, max_us, .. } = latency;
        let [p50, most, max] = [p50_us, p99_9_us, max_us].map(|micros| micros / 1e3);
        text += &format!("{count} x {kind}: p50 {p50:.1}, p99.9 {most:.1}, longest {max:.1} ms\n");
    }
    let whole = report.whole_nanos.max() as f64 / 1e6;
    text += &format!("whole: {whole:.1} ms, longest gap {:.1} ms\n", report.longest_gap_ms);
    if let Some(shares) = report.shares {
        text += &format!("{shares:?}, ratio {:.1}\n", shares.ratio());
    }
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
    let mut plan = Plan::new(["server:1"], Workload::Pairs);
    (plan.in_flight, plan.connections) = (1, 1);
    let mut load = ScriptedLoad::new(plan);
    load.step().expect("greeted");
    load.request().expect("asked");
    let reply = std::mem::take(&mut load.replies[0]);
    for end in 0..reply.len() {
        assert_eq!(load.session.received(0, &reply[..end], load.now), Ok(0), "{end}");
    }
    assert_eq!(load.session.received(0, &reply, load.now), Ok(reply.len()));
}
