use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use paxoslease_load::{Extent, Workload};
use paxoslease_wire::resp::{Protocol as Resp, Request, put_bulk, put_integer, put_simple};

use super::super::play::{MS, Play, plan};
use super::*;

/// As much of a Redis server as a lock needs.
#[derive(Default)]
struct Server {
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    sets: u32,
    is_dead: bool,
}

impl Server {
    fn answer(&mut self, request: &Request<'_>, reply: &mut Vec<u8>) {
        let arg = |index| request.arg(index).expect("so many arguments").to_vec();
        match arg(0).as_slice() {
            b"SCRIPT" => {
                let releases = arg(2).windows(5).any(|word| word == b"'del'");
                put_bulk(reply, if releases { b"rel" } else { b"ren" });
            }
            b"SET" => {
                self.sets += 1;
                match self.keys.entry(arg(1)) {
                    Entry::Occupied(_) => Resp::Resp2.put_null(reply),
                    Entry::Vacant(key) => {
                        key.insert(arg(2));
                        put_simple(reply, &"OK");
                    }
                }
            }
            b"EVALSHA" => {
                let is_held = self.keys.get(&arg(3)) == Some(&arg(4));
                if is_held && arg(1) == b"rel" {
                    self.keys.remove(&arg(3));
                }
                put_integer(reply, i64::from(is_held));
            }
            other => panic!("nobody asks {other:?}"),
        }
    }
}

/// A load on three servers.
struct Three {
    play: Play<Client>,
    servers: [Server; 3],
}

impl Three {
    fn new(plan: Plan) -> Self {
        let client = Client::new(&plan);
        Self { play: Play::new(plan, client), servers: Default::default() }
    }

    fn serve(servers: &mut [Server; 3], link: usize, asked: &[u8], replies: &mut [Vec<u8>]) {
        let server = &mut servers[link / 2];
        let mut rest = asked;
        while let Some((request, len)) = Request::parse(rest).expect("well formed") {
            if !server.is_dead {
                server.answer(&request, &mut replies[link]);
            }
            rest = &rest[len..];
        }
    }

    fn steps(&mut self, count: u32) {
        let servers = &mut self.servers;
        for _ in 0..count {
            self.play.step(&mut |link, asked, out| Self::serve(servers, link, asked, out));
        }
    }

    fn kill(&mut self, server: usize) {
        self.servers[server].is_dead = true;
        for link in 2 * server..2 * server + 2 {
            self.play.session.lost(link, self.play.now).expect("it goes on");
        }
    }

    fn run(mut self) -> (Report, [Server; 3]) {
        let servers = &mut self.servers;
        let report = self.play.run(&mut |link, asked, out| Self::serve(servers, link, asked, out));
        (report, self.servers)
    }
}

fn is_empty(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.keys.is_empty())
}

#[test]
fn a_count_of_pairs_goes_to_every_server_and_all_is_given_back() {
    let (loaded, servers) = Three::new(plan(Workload::Pairs, Extent::Count(100))).run();
    assert_eq!((loaded.operations, loaded.failures()), (100, 0));
    assert!(servers.iter().all(|server| server.sets >= 100), "each is asked for everything");
    assert!(is_empty(&servers));
}

#[test]
fn a_lock_that_a_majority_refuses_is_taken_back_where_it_was_set() {
    let warmup = Duration::ZERO;
    let mut three = Three::new(Plan { warmup, ..plan(Workload::Pairs, Extent::Count(8)) });
    for server in &mut three.servers[1..] {
        server.keys.insert(b"load/000000002".to_vec(), b"another".to_vec());
    }
    let (loaded, servers) = three.run();
    assert_eq!((loaded.operations, loaded.failures()), (7, 0), "held is no failure");
    assert!(servers[0].keys.is_empty());
    assert_eq!(servers[1].keys.len(), 1, "what belongs to another stays");
}

#[test]
fn a_lock_that_a_minority_refuses_is_held() {
    let warmup = Duration::ZERO;
    let mut three = Three::new(Plan { warmup, ..plan(Workload::Pairs, Extent::Count(8)) });
    three.servers[0].keys.insert(b"load/000000002".to_vec(), b"another".to_vec());
    assert_eq!(three.run().0.operations, 8);
}

#[test]
fn the_death_of_one_server_costs_nothing_and_of_two_everything() {
    let mut three = Three::new(plan(Workload::Pairs, Extent::Count(100)));
    three.steps(20);
    three.kill(1);
    let (loaded, servers) = three.run();
    assert_eq!((loaded.operations, loaded.failures()), (100, 0));
    assert!(servers[0].keys.is_empty() && servers[2].keys.is_empty());
    let mut three = Three::new(plan(Workload::Pairs, Extent::Lasting(50 * MS)));
    three.steps(20);
    three.kill(1);
    three.kill(2);
    let (loaded, _) = three.run();
    assert_eq!(loaded.failures(), 4, "each client fails once and then waits for a majority");
    assert!(loaded.longest_gap_ms >= 30.0, "{}", loaded.longest_gap_ms);
}

#[test]
fn leases_are_taken_renewed_and_given_back() {
    let workload = Workload::Renew { leases: 10 };
    let (loaded, servers) = Three::new(plan(workload, Extent::Count(25))).run();
    assert_eq!((loaded.operations, loaded.failures()), (25, 0));
    assert_eq!(servers[0].sets, 10);
    assert!(is_empty(&servers));
}

#[test]
fn clients_that_poll_get_the_name_from_each_other() {
    let (loaded, servers) = Three::new(plan(Workload::Handover, Extent::Count(50))).run();
    let shares = loaded.shares.expect("of a hand-over");
    assert_eq!(loaded.operations, 50);
    assert!(shares.handovers > 0, "{shares:?}");
    assert!(servers[0].sets > 50, "some tries found it held");
    assert!(is_empty(&servers));
}

#[test]
fn what_is_filled_stays() {
    let (loaded, servers) = Three::new(plan(Workload::Fill, Extent::Count(30))).run();
    assert_eq!(loaded.operations, 30);
    assert!(servers.iter().all(|server| server.keys.len() >= 30));
}
