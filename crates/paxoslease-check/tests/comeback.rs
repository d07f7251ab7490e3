//! Scripts for the rules whose harm takes many steps. In one, a tenure is healed after another
//! tenure was granted and released, and is then renewed. In another, a Heal arrives after the
//! release of its tenure, at an acceptor with a later tenure. The search finds the first too, in
//! minutes.
//!
//! Acceptors A, B, C are nodes 1 to 3. The holder x uses node 4, its rival y uses node 5.

use core::time::Duration;

use paxoslease_core::{
    Acquire, Cell, Config, Drift, Event, Holder, Instant, Name, NodeId, Renew, Rule, Rules, Shard,
    Start, Tenure, To, Token, Transmit, Ttl,
};

const TICK: Duration = Duration::from_millis(50);
const A: u16 = 1;
const B: u16 = 2;
const C: u16 = 3;
const X: u16 = 4;
const Y: u16 = 5;

struct Script {
    shards: Vec<Shard>,
    packets: Vec<Packet>,
    events: Vec<Event>,
    now: Instant,
}

#[derive(Clone)]
struct Packet {
    from: u16,
    to: u16,
    transmit: Transmit,
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

fn name() -> Name<'static> {
    Name::new("x").expect("not empty")
}

impl Script {
    /// `rival_counter` is the first ballot counter of the rival.
    fn new(rules: Rules, rival_counter: u64) -> Self {
        let max_lease = Ttl::from_millis(1000).expect("positive");
        let cell = Cell::new(&[node(A), node(B), node(C)], max_lease, Drift::NONE).expect("valid");
        let shard = |id| {
            let mut config = Config::new(node(id), cell, 1);
            config.attempt_timeout = TICK;
            config.attempt_timeout_min = TICK;
            config.rules = rules;
            let counter = if id == Y { rival_counter } else { 0 };
            Shard::start(config, Instant::ZERO, Start::NewCell { counter, disk: false })
        };
        let shards = [A, B, C, X, Y].into_iter().map(shard).collect();
        Self { shards, packets: Vec::new(), events: Vec::new(), now: Instant::ZERO }
    }

    fn at(&mut self, id: u16, act: impl FnOnce(&mut Shard, Instant)) {
        let shard = &mut self.shards[usize::from(id) - 1];
        act(shard, self.now);
        let cell = shard.config().cell;
        while let Some(transmit) = shard.poll_transmit() {
            let to: Vec<NodeId> = match transmit.to {
                To::Members(set) => cell.nodes(set).collect(),
                To::Node(node) => vec![node],
            };
            let packet = |to: NodeId| Packet { from: id, to: to.get(), transmit: transmit.clone() };
            self.packets.extend(to.into_iter().map(packet));
        }
        while let Some(event) = shard.poll_event() {
            self.events.push(event);
        }
    }

    fn acquire(&mut self, id: u16) {
        self.acquire_for(id, TICK);
    }

    fn acquire_for(&mut self, id: u16, ttl: Duration) {
        let (token, name, holder) = (Token(0), name(), Holder::NONE);
        let acquire = Acquire { token, name, holder, ttl, wait: TICK };
        self.at(id, |shard, now| shard.acquire(now, acquire).expect("in bounds"));
    }

    fn renew(&mut self, id: u16, tenure: Tenure) {
        let (token, name, holder) = (Token(1), name(), Holder::NONE);
        let renew = Renew { token, name, holder, tenure, ttl: TICK * 2 };
        self.at(id, |shard, now| shard.renew(now, renew).expect("in bounds"));
    }

    /// Delivers every message of this kind sent so far from one node to another, and the answers.
    fn deliver(&mut self, kind: &str, from: u16, to: u16) {
        let sent = |packet: &Packet, from, to| (packet.from, packet.to) == (from, to);
        let is_due =
            |packet: &&Packet| sent(packet, from, to) && packet.transmit.message().kind() == kind;
        let due: Vec<Packet> = self.packets.iter().filter(is_due).cloned().collect();
        assert!(!due.is_empty(), "no {kind} from {from} to {to}");
        for Packet { transmit, .. } in due {
            // A rule may refuse the message; the test looks at the events.
            self.at(to, |shard, now| {
                let _ = shard.handle_message(now, node(from), transmit.message());
            });
        }
        let answers: Vec<Packet> =
            self.packets.extract_if(.., |packet| sent(packet, to, from)).collect();
        for Packet { transmit, .. } in answers {
            self.at(from, |shard, now| {
                let _ = shard.handle_message(now, node(to), transmit.message());
            });
        }
    }

    fn release(&mut self, id: u16, tenure: Tenure) {
        self.at(id, |shard, now| {
            shard.release(now, Token(2), name(), tenure, TICK).expect("in bounds");
        });
    }

    fn tick(&mut self) {
        self.now = self.now.after(TICK);
    }

    fn last_granted(&self) -> Option<Tenure> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Granted { tenure, .. } => Some(*tenure),
            _ => None,
        })
    }
}

/// Whether x is renewed after y was granted, which would set the fence back.
fn comes_back(rules: Rules, rival_counter: u64) -> bool {
    let mut script = Script::new(rules, rival_counter);
    // Tick 0: A and B grant x, and renew it for two ticks. C receives nothing.
    script.acquire(X);
    script.deliver("Propose", X, A);
    script.deliver("Propose", X, B);
    let x = script.last_granted().expect("x is granted");
    script.renew(X, x);
    script.deliver("Renew", X, A);
    script.deliver("Renew", X, B);
    // Tick 1: a second renewal reaches only A. The first renewal heals C, but the Heal is slow.
    script.tick();
    script.renew(X, x);
    script.deliver("Renew", X, A);
    script.at(X, Shard::handle_timeout);
    // Tick 2: x has ended at B, and C never had it: y may be granted, and is released again.
    script.tick();
    script.acquire(Y);
    script.deliver("Propose", Y, B);
    script.deliver("Propose", Y, C);
    if script.last_granted() == Some(x) {
        return false;
    }
    let y = script.last_granted().expect("y is granted");
    script.release(Y, y);
    script.deliver("Release", Y, C);
    // The slow Heal arrives at C, then the second renewal: together with A that is a majority.
    script.events.clear();
    script.deliver("Heal", X, C);
    script.deliver("Renew", X, C);
    script.events.iter().any(|event| matches!(event, Event::Renewed { .. }))
}

/// Whether a node that lost its memory, and whose wall clock is not ahead, is granted again a
/// ballot that is held.
fn is_issued_twice(rules: Rules) -> bool {
    let mut script = Script::new(rules, 0);
    script.acquire(A);
    script.deliver("Propose", A, B);
    let held = script.last_granted().expect("granted");
    let config = script.shards[0].config().clone();
    let start = Start::NoRecord { counter: 0, longest: config.cell.max_lease(), disk: false };
    script.shards[0] = Shard::start(config, script.now, start);
    (script.packets, script.events) = (Vec::new(), Vec::new());
    script.acquire(A);
    if script.packets.is_empty() {
        return false;
    }
    script.deliver("Propose", A, B);
    script.deliver("Propose", A, C);
    script.last_granted() == Some(held)
}

/// Whether z is granted while the belief in y lasts, after B lost its memory. The wall clock of X
/// is ahead of all others.
fn is_healed_away(rules: Rules) -> bool {
    const AHEAD: u64 = 1000;
    let mut script = Script::new(rules, 10);
    // x is granted on A and B far above the counters of others, and renewed; the Heal for C is
    // slow. X releases x.
    script.at(X, |shard, _| shard.observe_counter(AHEAD).expect("in bounds"));
    script.acquire(X);
    script.deliver("Propose", X, A);
    script.deliver("Propose", X, B);
    let x = script.last_granted().expect("x is granted");
    script.renew(X, x);
    for acceptor in [A, B, C] {
        script.deliver("Renew", X, acceptor);
    }
    script.release(X, x);
    for acceptor in [A, B, C] {
        script.deliver("Release", X, acceptor);
    }
    // B loses its memory, hears the counters of A and C, and waits until no lease is left.
    let place = usize::from(B - 1);
    let config = script.shards[place].config().clone();
    let longest = config.cell.max_lease();
    let start = Start::NoRecord { counter: 1, longest, disk: false };
    script.shards[place] = Shard::start(config, script.now, start);
    for other in [A, C] {
        let counter = script.shards[usize::from(other - 1)].counter();
        script.at(B, |shard, _| {
            shard.observe_counter(counter).expect("in bounds");
            shard.heard_counter(node(other), true);
        });
    }
    script.now = script.now.after(longest.as_duration() * 2);
    // y is granted on B and C, below x, and the slow Heal of x arrives.
    script.events.clear();
    script.acquire_for(Y, TICK * 10);
    script.deliver("Propose", Y, B);
    script.deliver("Propose", Y, C);
    let Some(y) = script.last_granted() else { return false };
    assert!(y < x, "{y:?} is granted after {x:?}");
    script.deliver("Heal", X, C);
    // The Heal's time is over first: z is granted on A and C while y is believed.
    script.events.clear();
    script.tick();
    script.tick();
    script.acquire(A);
    script.deliver("Propose", A, C);
    script.last_granted().is_some_and(|z| z != y)
}

#[test]
fn a_member_that_lost_its_promises_learns_them_before_it_votes() {
    assert!(!is_healed_away(Rules::ALL));
    assert!(is_healed_away(Rules::without(Rule::RecordlessFloorIsLearnt)));
}

#[test]
fn a_node_without_a_record_asks_before_it_issues_a_ballot() {
    assert!(!is_issued_twice(Rules::ALL));
    assert!(is_issued_twice(Rules::without(Rule::RecordlessNodeAsksFirst)));
}

#[test]
fn a_tenure_does_not_come_back_after_a_later_one() {
    for rival_counter in [0, 1, 2, 3, 10] {
        assert!(!comes_back(Rules::ALL, rival_counter), "rival from {rival_counter}");
    }
}

#[test]
fn without_renewals_raising_promised_a_tenure_comes_back() {
    assert!(comes_back(Rules::without(Rule::RenewRaisesPromised), 0));
}

#[test]
fn without_heals_obeying_the_ballot_a_tenure_comes_back() {
    assert!(comes_back(Rules::without(Rule::HealObeysBallot), 10));
}

#[test]
fn without_heals_carrying_its_ballot_a_tenure_comes_back() {
    assert!(comes_back(Rules::without(Rule::HealCarriesRenewalBallot), 2));
}

/// Whether w is granted while the belief in z, a tenure above x, still lasts.
fn displaces(rules: Rules) -> bool {
    let mut script = Script::new(rules, 10);
    // Tick 0: A and B grant x. It is renewed through Y, whose ballots are far above. The Heal for C
    // is slow. X releases x; the Release for C is slow too.
    script.acquire(X);
    script.deliver("Propose", X, A);
    script.deliver("Propose", X, B);
    let x = script.last_granted().expect("x is granted");
    script.renew(Y, x);
    for acceptor in [A, B, C] {
        script.deliver("Renew", Y, acceptor);
    }
    script.release(X, x);
    script.deliver("Release", X, A);
    script.deliver("Release", X, B);
    // Y is granted z and renews it through X, whose ballots are far below. So is the promise of C
    // after it is healed.
    script.acquire(Y);
    script.deliver("Propose", Y, A);
    script.deliver("Propose", Y, B);
    let z = script.last_granted().filter(|z| *z > x).expect("z is granted");
    script.renew(X, z);
    for acceptor in [A, B, C] {
        script.deliver("Renew", X, acceptor);
    }
    script.deliver("Heal", X, C);
    // Tick 1: B and C renew z until tick 3.
    script.tick();
    script.events.clear();
    script.renew(X, z);
    script.deliver("Renew", X, B);
    script.deliver("Renew", X, C);
    assert!(script.events.iter().any(|event| matches!(event, Event::Renewed { .. })));
    // Tick 2: z has ended at A. The slow Heal of x arrives at C, then the Release of x.
    script.tick();
    script.deliver("Heal", Y, C);
    script.deliver("Release", X, C);
    script.packets.clear();
    script.acquire(Y);
    script.deliver("Propose", Y, A);
    script.deliver("Propose", Y, C);
    script.last_granted().is_some()
}

#[test]
fn a_late_heal_does_not_displace_a_higher_tenure() {
    assert!(!displaces(Rules::ALL));
}

#[test]
fn without_its_rule_a_late_heal_displaces_a_higher_tenure() {
    assert!(displaces(Rules::without(Rule::HealReplacesOnlyLower)));
}
