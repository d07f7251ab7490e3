//! One fault at a time, and the promises that must hold in spite of it: the scenes of `scenes.txt`,
//! which explains its commands. In every scene each grant has a higher fence than the one before,
//! and the judge finds nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use paxoslease_core::{Ballot, Name, NodeId, Record};
use paxoslease_node::front::{Answer, Request};
use paxoslease_node::simulation::write_record;

use super::*;
use crate::clock::HostClock;
use paxoslease_rig::check_transcript;

struct Scene {
    setup: Setup,
    cell: Simulation,
    /// By host: leases that the judge knows, with their clients, and leases that it does not.
    held: BTreeMap<usize, (u32, Rc<LeaseGuard>)>,
    leases: BTreeMap<usize, LeaseGuard>,
    /// The leases of clients that waited, by host.
    waited: Rc<RefCell<BTreeMap<usize, LeaseGuard>>>,
    /// The fence of the last grant, and of the last lease that was released.
    fence: u64,
    released: u64,
}

#[test]
fn every_scene_goes_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/scenes.txt");
    let mut scene = Scene::new("");
    check_transcript(&path, |line| match line.strip_prefix("cell ") {
        Some(settings) => {
            std::mem::replace(&mut scene, Scene::new(settings)).cell.assert_sound();
            String::new()
        }
        None => scene.play(line),
    });
    scene.cell.assert_sound();
}

/// A span such as `3s`, `250ms` or `100us`.
fn span(word: &str) -> Duration {
    let digits = word.trim_end_matches(char::is_alphabetic);
    let number = digits.parse().expect("a number");
    match &word[digits.len()..] {
        "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "us" => Duration::from_micros(number),
        unit => panic!("unknown unit {unit}"),
    }
}

/// Messages with this round trip, a tenth of it jitter.
fn apart(trip: Duration) -> Conditions {
    Conditions { delay: (trip * 9 / 20, trip * 11 / 20), ..Conditions::PERFECT }
}

/// Node n1 is on host 0.
fn host(word: &str) -> usize {
    let id = word.strip_prefix('n').and_then(|id| id.parse::<usize>().ok());
    id.unwrap_or_else(|| panic!("{word} is not a node")) - 1
}

impl Scene {
    fn new(settings: &str) -> Self {
        let mut setup = Setup::new(1, 3);
        let delay = (Duration::from_micros(100), Duration::from_micros(500));
        let mut conditions = Conditions { delay, chop: 300, ..Conditions::PERFECT };
        for setting in settings.split_whitespace() {
            let (key, value) = setting.split_once('=').expect("key=value");
            let number = || value.parse().expect("a number");
            match key {
                "seed" => setup.seed = u64::from(number()),
                "members" => setup.members = number(),
                "proposers" => setup.proposers = number(),
                "shards" => setup.shards = number(),
                "max_lease" => setup.max_lease = span(value),
                "trip" => conditions = apart(span(value)),
                "delay" => {
                    let (least, most) = value.split_once('-').expect("a range");
                    let delay = (span(least), span(most));
                    conditions = Conditions { delay, ..Conditions::PERFECT };
                }
                _ => panic!("unknown setting {key}"),
            }
        }
        let (held, leases, waited) = (BTreeMap::new(), BTreeMap::new(), Rc::default());
        let cell = cell_in(&setup, conditions);
        Self { setup, cell, held, leases, waited, fence: 0, released: 0 }
    }

    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut shown = String::new();
        match words[..] {
            ["run", time] => self.cell.run_for(span(time)),
            ["losses"] => shown = self.cell.judge().losses.to_string(),
            ["heal"] => self.cell.heal(),
            ["sever"] => {
                for pipe in self.cell.world.network.pipes() {
                    self.cell.world.network.cut(pipe, [true, false]);
                }
            }
            ["isolate", node] => self.cell.isolate(host(node)),
            ["block", from, to] => self.cell.block(host(from), host(to)),
            ["swallow", from, to] => {
                self.cell.world.network.swallowed.insert((host(from), host(to)));
            }
            ["stop", node] => self.cell.stop(host(node)),
            ["start", node] => self.cell.start(host(node)),
            ["kill", node] => self.cell.kill(host(node), Presence::Refusing),
            ["silence", node] => self.cell.kill(host(node), Presence::Silent),
            ["pause", node] => self.cell.pause(host(node)),
            ["resume", node] => self.cell.resume(host(node)),
            ["trip", trip] => self.cell.world.network.conditions = apart(span(trip)),
            // Two writes in a hundred, and all that follow them, arrive like a retransmission.
            ["trip", trip, "late"] => {
                let spike = (20, (span(trip) + Duration::from_millis(200)) * 2);
                self.cell.world.network.conditions = Conditions { spike, ..apart(span(trip)) };
            }
            ["share", node, "for", time, ref habits @ ..] => {
                shown = self.share(host(node), span(time), habits);
            }
            ["join", ref settings @ ..] => self.join(settings),
            ["dials", "within", time, "most", most] => {
                let before = self.cell.world.network.dials();
                self.cell.run_for(span(time));
                let dials = self.cell.world.network.dials() - before;
                assert!(dials <= most.parse().expect("a count"), "{dials} dials");
            }
            ["disk", node, state] => {
                let fault = (state == "full").then_some(ErrorKind::StorageFull);
                self.cell.world.files(host(node)).expect("it has a disk").set_fault(fault);
            }
            [node, ref command @ ..] => shown = self.at(host(node), command),
            [] => {}
        }
        shown
    }

    /// Node 4, which only proposes, joins on another host. These of its settings differ.
    fn join(&mut self, settings: &[&str]) {
        let mut config = Setup { proposers: 1, ..self.setup.clone() }.config(4);
        let mut record = None;
        for setting in settings {
            match setting.split_once('=').expect("key=value") {
                ("cell", name) => config.cell = name.to_owned(),
                ("max_lease", longest) => config = config.max_lease(span(longest)),
                ("shards", count) => config = config.shards(count.parse().expect("a count")),
                ("counter", share) => {
                    let share: u64 =
                        share.strip_prefix("1/").expect("a share").parse().expect("it");
                    let ballot_ceiling = Ballot::COUNTER_LIMIT / share;
                    record = Some(Record { ballot_ceiling, lease_ceiling: None });
                }
                _ => panic!("unknown setting {setting}"),
            }
        }
        let host = self.cell.world.add_node(config, HostClock::new(0, 0), true);
        if let Some(record) = record {
            let files = self.cell.world.files(host).expect("it has a disk");
            let node = NodeId::new(4).expect("a node id");
            write_record(files, node, record).expect("the disk works");
        }
        self.cell.world.start(host).expect("a disk in memory works");
    }

    /// A command to the node of a host, or to a client there.
    fn at(&mut self, host: usize, command: &[&str]) -> String {
        match command {
            ["holds"] => {
                let (client, guard) = self.cell.hold(host);
                self.granted(guard.fence());
                self.held.insert(host, (client, guard));
            }
            ["takes"] => return self.take(host, Duration::MAX),
            ["tries"] => return self.take(host, Duration::ZERO),
            ["takes", "within", bound] => {
                let asked_at = self.cell.world.now();
                let answer = self.take(host, Duration::MAX);
                let waited = Duration::from_nanos(self.cell.world.now() - asked_at);
                assert!(waited < span(bound), "{answer} after {waited:?}");
                return answer;
            }
            ["insists"] => {
                let answers = (0..10).map(|_| self.take(host, Duration::MAX));
                return answers.into_iter().find(|answer| answer == "granted").unwrap_or_default();
            }
            ["leases", ttl] => {
                let guard = self.cell.lease(host, span(ttl));
                self.granted(guard.fence());
                self.leases.insert(host, guard);
            }
            ["releases"] => return self.release(host),
            ["drops"] => {
                self.cell.end_tasks_of(host);
                self.held.remove(&host);
            }
            ["state"] => {
                let held = self.held.get(&host).map(|(_, guard)| &**guard);
                let guard = held.or_else(|| self.leases.get(&host)).expect("it had a lease");
                return format!("{:?}", guard.state());
            }
            ["gets", name, "within", bound] => {
                let (node, name) = (self.cell.node(host), (*name).to_owned());
                let (asked_at, ttl) = (self.cell.world.now(), Duration::from_secs(10));
                let granted = self.cell.run(0, async move { node.try_acquire(&name, ttl).await });
                let waited = Duration::from_nanos(self.cell.world.now() - asked_at);
                assert!(granted.is_ok() && waited <= span(bound), "{granted:?} after {waited:?}");
            }
            ["waits", ttl] => {
                let (node, ttl, waited) = (self.cell.node(host), span(ttl), self.waited.clone());
                self.cell.spawn(host, async move {
                    let guard = node.acquire(MASTER, ttl).await.expect("it waits");
                    waited.borrow_mut().insert(host, guard);
                });
            }
            ["got", "within", bound] => {
                let waited = Rc::clone(&self.waited);
                let has_got = || waited.borrow().contains_key(&host);
                let in_time = self.cell.run_while(span(bound), |_| !has_got());
                if !in_time {
                    return "nothing".to_owned();
                }
                self.granted(waited.borrow()[&host].fence());
                return "granted".to_owned();
            }
            ["asks", wait] => return self.ask(host, span(wait)),
            ["renews", "for", holder, ttl] => {
                let (holder, ttl) = (self::host(holder), span(ttl));
                let (remote, fence) = (self.cell.node(host).remote(), self.leases[&holder].fence());
                let renewed = self.cell.run(host, async move {
                    let lease = Name::new(MASTER).expect("a name").into();
                    remote.ask(Request::Renew { lease, fence, ttl }).await
                });
                let is_renewed = matches!(renewed, Answer::Renewed { .. });
                return if is_renewed { "renewed".to_owned() } else { format!("{renewed:?}") };
            }
            ["releases", "for", holder] => {
                let fence = self.leases[&self::host(holder)].fence();
                let remote = self.cell.node(host).remote();
                let released = self.cell.run(host, async move {
                    let lease = Name::new(MASTER).expect("a name").into();
                    remote.ask(Request::Release { lease, fence, is_durable: false }).await
                });
                let Answer::Released { held, confirmed } = released else { panic!("{released:?}") };
                let held = held.map_or_else(|| "unknown".to_owned(), |held| held.to_string());
                return format!("held: {held}, confirmed: {confirmed}");
            }
            ["misses", peer, "within", bound] => {
                let (node, id) = (self.cell.node(host), self::host(peer) as u16 + 1);
                let seen = || {
                    let mut peers = node.status_shown().expect("it runs").peers.into_iter();
                    peers.find(|peer| peer.node == id).expect("a peer")
                };
                assert!(self.cell.run_while(span(bound), |_| seen().up), "it was not noticed");
                return seen().problem.unwrap_or_default();
            }
            ["ready"] => {
                let status = self.cell.node(host).status_shown().expect("it runs");
                return status.ready.to_string();
            }
            ["quarantine", least, most] => {
                let quarantine = self.cell.status(host).quarantine_remaining;
                let is_between = (span(least)..=span(most)).contains(&quarantine);
                return if is_between { "yes".to_owned() } else { format!("{quarantine:?}") };
            }
            ["status"] => {
                let status = self.cell.status(host);
                let up: Vec<u16> =
                    status.peers.iter().filter(|peer| peer.up).map(|peer| peer.node).collect();
                let problem = status.disk_problem.map_or("works", |_| "has a problem");
                return format!("connected with {up:?}, the disk {problem}");
            }
            _ => panic!("unknown command {command:?}"),
        }
        String::new()
    }

    /// Lets a client on each host from this one on share the lease. No client may wait through more
    /// than a few hand-overs for each contender, unless `unequal` says that all only make progress.
    fn share(&mut self, from: usize, time: Duration, habits: &[&str]) -> String {
        let (mut workers, mut finding) = (Workers::GREEDY, Duration::ZERO);
        let (mut least, mut is_unequal) = (1, false);
        let mut words = habits.iter();
        while let Some(word) = words.next() {
            let mut value = || *words.next().expect("a value");
            match *word {
                "crowd" => workers.per_host = value().parse().expect("a count"),
                "holding" => workers.held = span(value()),
                "pausing" => workers.pause = span(value()),
                "confirming" => workers.confirms = true,
                "after" => finding = span(value()),
                "least" => least = value().parse().expect("a count"),
                "unequal" => is_unequal = true,
                _ => panic!("unknown habit {word}"),
            }
        }
        let hosts: Vec<usize> = (from..self.cell.world.len()).collect();
        let sharing = self.cell.share_after(finding, &hosts, workers, time);
        let (hand_overs, grants) = (sharing.hand_overs(), &sharing.grants);
        assert!(hand_overs >= least && grants.iter().all(|count| *count > 0), "{grants:?}");
        let unfair = sharing.unfair().filter(|_| !is_unequal);
        unfair.unwrap_or_else(|| if is_unequal { "progress" } else { "fair" }.to_owned())
    }

    /// Fences grow from grant to grant.
    fn granted(&mut self, fence: u64) {
        assert!(fence > self.fence, "{fence} after {}", self.fence);
        self.fence = fence;
    }

    fn take(&mut self, host: usize, wait: Duration) -> String {
        let client = self.cell.next_task();
        match self.cell.take(host, wait) {
            Ok(guard) => {
                self.granted(guard.fence());
                self.held.insert(host, (client, guard));
                "granted".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    fn release(&mut self, host: usize) -> String {
        let guard = self.leases.remove(&host).unwrap_or_else(|| {
            let (client, guard) = self.held.remove(&host).expect("it holds a lease");
            self.cell.judge().gives_up(client);
            // The task that waits for the loss has the guard too.
            self.cell.end_tasks_of(host);
            Rc::into_inner(guard).expect("the judge and the task dropped it")
        });
        self.released = guard.fence();
        let released = self.cell.run(host, guard.release());
        released.map_or_else(|error| error.to_string(), |()| "confirmed".to_owned())
    }

    /// Acquires and drops the lease again.
    fn ask(&mut self, host: usize, wait: Duration) -> String {
        let node = self.cell.node(host);
        let answer = self.cell.run(host, async move { node.acquire(MASTER, TTL).wait(wait).await });
        let answer = match answer {
            Ok(_) => "granted",
            Err(AcquireError::Held { holder: Some(by), .. }) if by.fence == self.released => {
                "denied because of a released lease"
            }
            Err(_) => "denied",
        };
        answer.to_owned()
    }
}
