//! Scripted schedules for the rules whose harm takes many steps: a tenure that is healed after
//! another was granted and released, and then renewed; and a Heal that arrives after its tenure
//! was released, where a later tenure lives. The search finds the first too, in minutes.
//!
//! Acceptors A, B, C are nodes 1 to 3; the holder x works through node 4, its rival y through 5.

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
    letters: Vec<(u16, u16, Transmit)>,
    events: Vec<Event>,
    now: Instant,
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

fn name() -> Name<'static> {
    Name::new("x").expect("not empty")
}

impl Script {
    /// `rival_counter` is where the rival's ballots begin.
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
        Self { shards, letters: Vec::new(), events: Vec::new(), now: Instant::ZERO }
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
            let sent = to.into_iter().map(|to| (id, to.get(), transmit.clone()));
            self.letters.extend(sent);
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

    /// Delivers every letter so far of this kind from one node to another, and the answers.
    fn deliver(&mut self, kind: &str, from: u16, to: u16) {
        let matching = |letter: &(u16, u16, Transmit)| {
            (letter.0, letter.1) == (from, to) && letter.2.message().kind() == kind
        };
        let letters: Vec<_> = self.letters.iter().filter(|l| matching(l)).cloned().collect();
        assert!(!letters.is_empty(), "no {kind} from {from} to {to}");
        for (_, _, transmit) in letters {
            // What a rule refuses is refused; the test looks at the events.
            self.at(to, |shard, now| {
                let _ = shard.handle_message(now, node(from), transmit.message());
            });
        }
        let (answers, rest) = std::mem::take(&mut self.letters)
            .into_iter()
            .partition(|letter| (letter.0, letter.1) == (to, from));
        self.letters = rest;
        let answers: Vec<(u16, u16, Transmit)> = answers;
        for (_, _, transmit) in answers {
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
    // Tick 0: x is granted and renewed for two ticks by A and B; C hears nothing.
    script.acquire(X);
    script.deliver("Propose", X, A);
    script.deliver("Propose", X, B);
    let x = script.last_granted().expect("x is granted");
    script.renew(X, x);
    script.deliver("Renew", X, A);
    script.deliver("Renew", X, B);
    // Tick 1: a second renewal reaches A alone; the first one heals C, but that is slow.
    script.tick();
    script.renew(X, x);
    script.deliver("Renew", X, A);
    script.at(X, Shard::handle_timeout);
    // Tick 2: B has let go of x, C never had it: y may be granted, and is released again.
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
    // The slow Heal arrives, and then the second renewal at C: with A that is a majority.
    script.events.clear();
    script.deliver("Heal", X, C);
    script.deliver("Renew", X, C);
    script.events.iter().any(|event| matches!(event, Event::Renewed { .. }))
}

/// Whether a ballot that is held is granted again to a node that lost its memory, and whose wall
/// clock is not ahead of it.
fn is_issued_twice(rules: Rules) -> bool {
    let mut script = Script::new(rules, 0);
    script.acquire(A);
    script.deliver("Propose", A, B);
    let held = script.last_granted().expect("granted");
    let config = script.shards[0].config().clone();
    let start = Start::NoRecord { counter: 0, longest: config.cell.max_lease(), disk: false };
    script.shards[0] = Shard::start(config, script.now, start);
    (script.letters, script.events) = (Vec::new(), Vec::new());
    script.acquire(A);
    if script.letters.is_empty() {
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
fn a_node_without_a_record_issues_no_ballot_twice_unless_it_asks_nobody() {
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
fn without_renewals_raising_promised_it_does() {
    assert!(comes_back(Rules::without(Rule::RenewRaisesPromised), 0));
}

#[test]
fn without_heals_obeying_the_ballot_it_does() {
    assert!(comes_back(Rules::without(Rule::HealObeysBallot), 10));
}

#[test]
fn without_heals_carrying_the_renewals_ballot_it_does() {
    assert!(comes_back(Rules::without(Rule::HealCarriesRenewalBallot), 2));
}

/// Whether w is granted while the belief in z, which is above x, still lasts.
fn displaces(rules: Rules) -> bool {
    let mut script = Script::new(rules, 10);
    // Tick 0: x is granted on A and B and renewed through Y, whose ballots are far above. The
    // Heal for C is slow. X releases x; the Release for C is slow, too.
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
    // z is granted to Y, and renewed through X, whose ballots are far below: so is what C
    // promises when it is healed.
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
    // Tick 2: A has let go of z. The slow Heal of x arrives at C, and then the Release of x.
    script.tick();
    script.deliver("Heal", Y, C);
    script.deliver("Release", X, C);
    script.letters.clear();
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
fn without_heals_replacing_only_lower_tenures_it_does() {
    assert!(displaces(Rules::without(Rule::HealReplacesOnlyLower)));
}
