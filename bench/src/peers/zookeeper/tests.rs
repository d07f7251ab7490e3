use std::collections::BTreeMap;

use paxoslease_load::{Extent, Workload};

use super::super::play::{Play, plan};
use super::client::Client;
use super::jute::{NO_NODE, NODE_EXISTS, OK, op, whole};
use super::*;

/// As much of an ensemble as a lock needs.
#[derive(Default)]
struct Ensemble {
    /// Which session each node belongs to; zero for those that stay.
    nodes: BTreeMap<String, i64>,
    watches: Vec<(String, usize)>,
    sequence: u32,
    sessions: i64,
    /// By connection, once it has greeted.
    session_of: BTreeMap<usize, i64>,
    /// By kind of request.
    asked: BTreeMap<i32, u32>,
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn int(&mut self) -> i32 {
        let (head, rest) = self.0.split_first_chunk().expect("whole");
        self.0 = rest;
        i32::from_be_bytes(*head)
    }

    fn text(&mut self) -> String {
        let len = self.int() as usize;
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8(text.to_vec()).expect("text")
    }
}

fn message(body: &[&[u8]], out: &mut Vec<u8>) {
    let body = body.concat();
    out.extend((body.len() as i32).to_be_bytes());
    out.extend(body);
}

fn text(text: &str) -> Vec<u8> {
    [(text.len() as i32).to_be_bytes().as_slice(), text.as_bytes()].concat()
}

impl Ensemble {
    fn hear(&mut self, link: usize, request: &[u8], out: &mut [Vec<u8>]) {
        let Some(session) = self.session_of.get(&link).copied() else {
            self.sessions += 1;
            self.session_of.insert(link, self.sessions);
            let head = [0_i32.to_be_bytes(), 15_000_i32.to_be_bytes()].concat();
            let password = text("0123456789abcdef");
            message(&[&head, &self.sessions.to_be_bytes(), &password, &[0]], &mut out[link]);
            return;
        };
        let mut words = Words(request);
        let (xid, kind) = (words.int(), words.int());
        *self.asked.entry(kind).or_default() += 1;
        let (error, body) = match kind {
            op::CREATE => self.create(&mut words, session),
            op::DELETE => self.delete(&words.text(), out),
            op::EXISTS => {
                let path = words.text();
                let error = if self.nodes.contains_key(&path) { OK } else { NO_NODE };
                self.watches.push((path, link));
                (error, Vec::new())
            }
            op::CHILDREN => {
                let parent = format!("{}/", words.text());
                let names = self.nodes.keys().filter_map(|path| path.strip_prefix(&parent));
                let names: Vec<Vec<u8>> = names.map(text).collect();
                (OK, [(names.len() as i32).to_be_bytes().to_vec(), names.concat()].concat())
            }
            op::PING => (OK, Vec::new()),
            op::CLOSE => {
                self.nodes.retain(|_, owner| *owner != session);
                (OK, Vec::new())
            }
            other => panic!("nobody asks {other}"),
        };
        let head = [&xid.to_be_bytes()[..], &7_i64.to_be_bytes(), &error.to_be_bytes()].concat();
        message(&[&head, &body], &mut out[link]);
    }

    fn create(&mut self, words: &mut Words<'_>, session: i64) -> (i32, Vec<u8>) {
        let mut path = words.text();
        let (_data, acls, permissions) = (words.text(), words.int(), words.int());
        assert_eq!((acls, permissions), (1, 31));
        let (_scheme, _id, flags) = (words.text(), words.text(), words.int());
        if flags == 3 {
            self.sequence += 1;
            path = format!("{path}{:010}", self.sequence);
        }
        if self.nodes.contains_key(&path) {
            return (NODE_EXISTS, Vec::new());
        }
        let parent = path.rsplit_once('/').expect("a path").0;
        assert!(parent.is_empty() || self.nodes.contains_key(parent), "{path} has no parent");
        self.nodes.insert(path.clone(), if flags == 0 { 0 } else { session });
        (OK, text(&path))
    }

    fn delete(&mut self, path: &str, out: &mut [Vec<u8>]) -> (i32, Vec<u8>) {
        if self.nodes.remove(path).is_none() {
            return (NO_NODE, Vec::new());
        }
        for (_, link) in self.watches.extract_if(.., |(watched, _)| watched == path) {
            let head = [&(-1_i32).to_be_bytes()[..], &(-1_i64).to_be_bytes(), &[0; 4]].concat();
            let event = [2_i32.to_be_bytes(), 3_i32.to_be_bytes()].concat();
            message(&[&head, &event, &text(path)], &mut out[link]);
        }
        (OK, Vec::new())
    }
}

fn play(plan: Plan) -> (Report, Ensemble) {
    let mut ensemble = Ensemble::default();
    let client = Client::new(&plan, 0, Target::One);
    let report = Play::new(plan, client).run(&mut |link, asked, replies| {
        let mut rest = asked;
        while let Some(request) = whole(rest).expect("well formed") {
            ensemble.hear(link, request, replies);
            rest = &rest[4 + request.len()..];
        }
    });
    (report, ensemble)
}

fn left(ensemble: &Ensemble) -> usize {
    ensemble.nodes.values().filter(|owner| **owner != 0).count()
}

#[test]
fn pairs_create_and_delete_under_parents_that_exist() {
    let (loaded, ensemble) = play(plan(Workload::Pairs, Extent::Count(100)));
    assert_eq!((loaded.operations, loaded.failures()), (100, 0));
    assert!(ensemble.asked[&op::DELETE] >= 100);
    assert_eq!(left(&ensemble), 0);
    assert!(ensemble.nodes.contains_key("/load"));
}

#[test]
fn renewals_are_pings_and_what_they_kept_goes_with_the_session() {
    let (loaded, ensemble) = play(plan(Workload::Renew { leases: 10 }, Extent::Count(25)));
    assert_eq!((loaded.operations, loaded.failures()), (25, 0));
    assert!(ensemble.asked[&op::PING] >= 25);
    assert_eq!(ensemble.asked[&op::CLOSE], 2);
    assert_eq!(left(&ensemble), 0);
}

#[test]
fn a_lock_that_is_waited_for_goes_around_in_the_order_of_the_queue() {
    let warmup = Duration::ZERO;
    let (loaded, ensemble) = play(Plan { warmup, ..plan(Workload::Handover, Extent::Count(60)) });
    let shares = loaded.shares.expect("of a hand-over");
    assert_eq!((loaded.operations, shares.max, shares.min), (60, 15, 15));
    assert_eq!(left(&ensemble), 0);
    assert!(ensemble.asked[&op::EXISTS] > 0);
}

#[test]
fn what_is_filled_stays() {
    let (loaded, ensemble) = play(plan(Workload::Fill, Extent::Count(30)));
    assert_eq!(loaded.operations, 30);
    assert!(left(&ensemble) >= 30);
    assert_eq!(ensemble.asked.get(&op::CLOSE), None);
}

#[test]
fn a_name_that_is_held_is_no_failure() {
    let mixed = Workload::Mixed { hot_names: 1, hot_share: 0.5 };
    let (loaded, ensemble) = play(plan(mixed, Extent::Count(200)));
    assert_eq!(loaded.failures(), 0);
    assert!((100..200).contains(&loaded.operations), "{}", loaded.operations);
    assert_eq!(left(&ensemble), 0);
}
