use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use paxoslease_load::{Extent, Workload};
use paxoslease_wire::resp::{Protocol as Resp, Request, put_integer, put_simple};

use super::super::tests::load;
use super::super::wire::Conversation as _;
use super::*;

const MS: Duration = Duration::from_millis(1);

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
            b"SCRIPT" => put_bulk(reply, if arg(2) == RELEASE_SCRIPT { b"rel" } else { b"ren" }),
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

/// A load on three servers, a millisecond away.
struct Play {
    engine: Engine<Client>,
    servers: Vec<Server>,
    connections: usize,
    now: Duration,
}

impl Play {
    fn new(load: &Load) -> Self {
        let client = Client::new(load, 3);
        let connections = client.connections;
        let mut engine = Engine::new(client, load);
        for link in 0..3 * connections {
            engine.connected(link, Duration::ZERO);
        }
        let servers = (0..3).map(|_| Server::default()).collect();
        Self { engine, servers, connections, now: Duration::ZERO }
    }

    fn step(&mut self) -> Result<()> {
        self.engine.pump(self.now)?;
        self.now += MS;
        let mut replies = Vec::new();
        while let Some(link) = self.engine.next_pending() {
            let asked = std::mem::take(self.engine.outgoing(link));
            let server = &mut self.servers[link / self.connections];
            let mut reply = Vec::new();
            let mut rest = asked.as_slice();
            while let Some((request, len)) = Request::parse(rest)? {
                server.answer(&request, &mut reply);
                rest = &rest[len..];
            }
            if !server.is_dead {
                replies.push((link, reply));
            }
        }
        for (link, reply) in replies {
            assert_eq!(self.engine.received(link, &reply, self.now)?, reply.len());
        }
        Ok(())
    }

    fn kill(&mut self, server: usize) {
        self.servers[server].is_dead = true;
        for link in 0..self.connections {
            self.engine.lost(server * self.connections + link, self.now);
        }
    }

    fn run(mut self) -> Result<(Loaded, Vec<Server>)> {
        for _ in 0..100_000 {
            self.step()?;
            if self.engine.is_done() {
                return Ok((self.engine.loaded(), self.servers));
            }
        }
        bail!("a load without end")
    }
}

fn is_empty(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.keys.is_empty())
}

#[test]
fn a_count_of_pairs_goes_to_every_server_and_all_is_given_back() {
    let (loaded, servers) =
        Play::new(&load(Workload::Pairs, Extent::Count(100))).run().expect("willing servers");
    assert_eq!((loaded.operations, loaded.failures), (100, 0));
    assert!(servers.iter().all(|server| server.sets >= 100), "each is asked for everything");
    assert!(is_empty(&servers));
}

#[test]
fn a_lock_that_a_majority_refuses_is_taken_back_where_it_was_set() {
    let warmup = Duration::ZERO;
    let mut play = Play::new(&Load { warmup, ..load(Workload::Pairs, Extent::Count(8)) });
    for server in &mut play.servers[1..] {
        server.keys.insert(b"load/000000002".to_vec(), b"another".to_vec());
    }
    let (loaded, servers) = play.run().expect("willing servers");
    assert_eq!((loaded.operations, loaded.failures), (7, 0), "held is no failure");
    assert!(servers[0].keys.is_empty());
    assert_eq!(servers[1].keys.len(), 1, "what belongs to another stays");
}

#[test]
fn a_lock_that_a_minority_refuses_is_held() {
    let warmup = Duration::ZERO;
    let mut play = Play::new(&Load { warmup, ..load(Workload::Pairs, Extent::Count(8)) });
    play.servers[0].keys.insert(b"load/000000002".to_vec(), b"another".to_vec());
    assert_eq!(play.run().expect("willing servers").0.operations, 8);
}

#[test]
fn the_death_of_one_server_costs_nothing_and_of_two_everything() {
    let mut play = Play::new(&load(Workload::Pairs, Extent::Count(100)));
    for _ in 0..20 {
        play.step().expect("willing servers");
    }
    play.kill(1);
    let (loaded, servers) = play.run().expect("a majority");
    assert_eq!((loaded.operations, loaded.failures), (100, 0));
    assert!(servers[0].keys.is_empty() && servers[2].keys.is_empty());
    let mut play = Play::new(&load(Workload::Pairs, Extent::Lasting(50 * MS)));
    for _ in 0..20 {
        play.step().expect("willing servers");
    }
    play.kill(1);
    play.kill(2);
    let (loaded, _) = play.run().expect("an end");
    assert_eq!(loaded.failures, 4, "each client fails once and then waits for a majority");
    assert!(loaded.longest_gap >= 30 * MS, "{:?}", loaded.longest_gap);
}

#[test]
fn leases_are_taken_renewed_and_given_back() {
    let workload = Workload::Renew { leases: 10 };
    let (loaded, servers) =
        Play::new(&load(workload, Extent::Count(25))).run().expect("willing servers");
    assert_eq!((loaded.operations, loaded.failures), (25, 0));
    assert_eq!(servers[0].sets, 10);
    assert!(is_empty(&servers));
}

#[test]
fn clients_that_poll_get_the_name_from_each_other() {
    let (loaded, servers) =
        Play::new(&load(Workload::Handover, Extent::Count(50))).run().expect("willing servers");
    let shares = loaded.shares.expect("of a hand-over");
    assert_eq!(loaded.operations, 50);
    assert!(shares.handovers > 0, "{shares:?}");
    assert!(servers[0].sets > 50, "some tries found it held");
    assert!(is_empty(&servers));
}

#[test]
fn what_is_filled_stays() {
    let (loaded, servers) =
        Play::new(&load(Workload::Fill, Extent::Count(30))).run().expect("willing servers");
    assert_eq!(loaded.operations, 30);
    assert!(servers.iter().all(|server| server.keys.len() >= 30));
}
