//! A scripted server and a manual clock.

use std::collections::{BTreeMap, BTreeSet};

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
    refusal: Option<&'static str>,
}

impl FakeServer {
    /// Answers one request; a waiting acquire gets its answer later.
    fn answer(&mut self, link: usize, request: &Request<'_>, out: &mut [Vec<u8>]) {
        let arg = |index| request.arg(index).expect("an argument").to_vec();
        let words: Vec<String> = request.args().iter().map(|word| text_of(word)).collect();
        self.asked.push(words.join(" "));
        let reply = &mut out[link];
        match (self.refusal, arg(0).as_slice()) {
            (_, b"HELLO") => {
                Protocol::Resp3.put_map(reply, 1);
                put_bulk(reply, b"server");
                put_bulk(reply, b"paxoslease");
            }
            (_, b"SCRIPT") => put_bulk(reply, &arg(2)),
            (Some(text), _) => put_error(reply, &text),
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

#[test]
fn a_count_of_pairs_is_exactly_that_many_on_names_of_their_own() {
    let mut load = ScriptedLoad::sized(Workload::Pairs, 8, 3, Extent::Count(100));
    let report = load.run().expect("a willing server");
    assert_eq!((report.operations, report.failures(), report.held), (100, 0, 0));
    assert_eq!(load.asked("LEASE.ACQUIRE"), 100);
    assert_eq!(load.asked("LEASE.RELEASE"), 100);
    assert!(load.server.held.is_empty(), "everything was given back");
    let acquires = load.server.asked.iter().filter(|asked| asked.starts_with("LEASE.ACQUIRE"));
    let names: BTreeSet<_> = acquires.filter_map(|request| request.split(' ').nth(1)).collect();
    assert_eq!(names.len(), 100);
    assert_eq!(report.latency["acquire"].count, 100);
    assert_eq!(report.latency["release"].count, 100);
    // A pair is two requests, each with a latency of a millisecond.
    assert_eq!(report.whole_nanos.len(), 100);
    assert!((report.whole_nanos.max() as f64 / 2e6 - 1.0).abs() < 0.01, "{report:?}");
    assert!((report.longest_gap_ms - 2.0).abs() < 1e-9, "{}", report.longest_gap_ms);
}

#[test]
fn redis_is_driven_through_the_same_load() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| {
        plan.dialect = Dialect::Redis;
        plan.extent = Extent::Count(200);
    });
    let report = load.run().expect("a willing server");
    assert_eq!((report.operations, report.failures()), (200, 0));
    assert_eq!((load.asked("SET"), load.asked("EVALSHA")), (200, 200));
    assert!(load.server.held.is_empty());
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
fn nothing_counts_before_the_warm_up_is_over_nor_after_the_end() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| {
        (plan.in_flight, plan.connections) = (1, 1);
        (plan.warmup, plan.extent) = (10 * MS, Extent::Lasting(20 * MS));
    });
    let report = load.run().expect("a willing server");
    // A pair takes two steps of a millisecond.
    assert_eq!(report.operations, 10);
    assert!((report.seconds - 0.020).abs() < 1e-9, "{}", report.seconds);
    assert!((report.per_second - 500.0).abs() < 1e-6, "{}", report.per_second);
    assert!(load.asked("LEASE.RELEASE") > 10);
    assert!(load.server.held.is_empty());
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
fn what_was_due_and_could_not_be_begun_is_reported() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| {
        (plan.in_flight, plan.connections) = (1, 1);
        (plan.rate, plan.extent) = (Some(1000.0), Extent::Lasting(100 * MS));
    });
    let report = load.run().expect("a willing server");
    // One slot completes a pair in two milliseconds.
    assert_eq!(report.operations, 50);
    assert!((45..=51).contains(&report.behind), "{}", report.behind);
}

#[test]
fn leases_are_taken_first_then_renewed_in_turn_and_given_back() {
    let mut load = ScriptedLoad::sized(Workload::Renew { leases: 10 }, 4, 2, Extent::Count(25));
    let report = load.run().expect("a willing server");
    assert_eq!((report.operations, report.failures()), (25, 0));
    assert_eq!(load.asked("LEASE.ACQUIRE"), 10);
    assert_eq!(load.asked("LEASE.RENEW"), 25);
    assert_eq!(load.asked("LEASE.RELEASE"), 10);
    assert!(load.server.held.is_empty());
    assert_eq!(report.latency.keys().copied().collect::<Vec<_>>(), ["renew"]);
}

#[test]
fn filling_takes_every_name_once_and_gives_none_back() {
    let mut load = ScriptedLoad::sized(Workload::Fill, 4, 2, Extent::Count(25));
    let report = load.run().expect("a willing server");
    assert_eq!((report.operations, report.failures()), (25, 0));
    let names: Vec<_> = (0..25).map(|number| format!("load/{number:09}").into_bytes()).collect();
    assert!(load.server.held.keys().eq(&names), "{:?}", load.server.held.keys());
    assert_eq!(load.asked("LEASE.ACQUIRE"), 25);
    assert_eq!(report.latency.keys().copied().collect::<Vec<_>>(), ["acquire"]);
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
fn a_name_to_renew_that_is_held_by_another_ends_the_load() {
    let mut load = ScriptedLoad::new(Workload::Renew { leases: 64 }, |_| {});
    load.server.held.insert(b"load/000000003".to_vec(), b"1".to_vec());
    assert_eq!(load.run().err(), Some(Failure::Taken("load/000000003".to_owned())));
}

#[test]
fn clients_that_wait_get_the_name_in_turn() {
    let mut load = ScriptedLoad::sized(Workload::Handover, 5, 5, Extent::Count(50));
    let report = load.run().expect("a willing server");
    let shares = report.shares.expect("of a hand-over");
    assert_eq!((shares.clients, shares.max, shares.min), (5, 10, 10));
    assert!(shares.handovers >= 49, "{shares:?}");
    assert!(load.server.held.is_empty() && load.server.waiting.is_empty());
    assert!(load.server.asked.iter().all(|request| !request.contains("NOTIFY")));
}

#[test]
fn clients_that_share_a_connection_wait_by_notify() {
    let mut load = ScriptedLoad::sized(Workload::Handover, 6, 2, Extent::Count(60));
    let report = load.run().expect("a willing server");
    assert_eq!(report.operations, 60);
    assert_eq!(report.shares.map(|shares| (shares.max, shares.min)), Some((10, 10)));
    assert!(load.server.held.is_empty());
    assert!(load.asked("LEASE.ACQUIRE load/000000000 15000 WAIT 5000 NOTIFY 5") >= 10);
}

#[test]
fn redis_is_polled_until_the_name_is_free() {
    let mut load = ScriptedLoad::new(Workload::Handover, |plan| {
        plan.dialect = Dialect::Redis;
        (plan.in_flight, plan.connections, plan.extent) = (3, 3, Extent::Count(30));
    });
    let report = load.run().expect("a willing server");
    assert_eq!((report.operations, report.held), (30, 0));
    assert!(load.asked("SET") > 30, "some tries found it held");
    assert!(load.server.held.is_empty());
}

#[test]
fn a_share_of_a_mixed_load_goes_to_few_names() {
    let workload = Workload::Mixed { hot_names: 2, hot_share: 0.25 };
    let mut load = ScriptedLoad::new(workload, |plan| plan.extent = Extent::Count(4000));
    let report = load.run().expect("a willing server");
    let hot =
        load.asked("LEASE.ACQUIRE load/000000000") + load.asked("LEASE.ACQUIRE load/000000001");
    assert!((850..1150).contains(&hot), "{hot}");
    assert!(report.held > 0, "64 at once on two names collide");
    assert_eq!(report.operations + report.held, 4000);
}

#[test]
fn passing_errors_are_counted_and_lasting_ones_end_the_load() {
    let mut load = ScriptedLoad::new(Workload::Pairs, |plan| plan.extent = Extent::Count(100));
    load.server.refusal = Some("NOQUORUM only one of three answers");
    let report = load.run().expect("it goes on");
    assert_eq!((report.operations, report.failures()), (0, 100));
    assert_eq!(report.last_error.as_deref(), Some("NOQUORUM only one of three answers"));
    let mut load = ScriptedLoad::new(Workload::Pairs, |_| {});
    load.server.refusal = Some("TTL at most 10s");
    assert_eq!(load.run().err(), Some(Failure::Refused("TTL at most 10s".to_owned())));
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
