//! Random schedules on four real shards: commands, deliveries in any order, losses, duplicates and
//! time. No shard panics, no two holders believe at the same time, every request is answered once,
//! and at the end no state is left behind.

mod cell;

use core::time::Duration;
use std::collections::BTreeMap;

use cell::{MS, NAME, TTL, TestCell, name};
use paxoslease_core::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Acquire { id: u16, wait: Duration },
    Renew { id: u16, which: usize, ttl: Duration },
    Release { id: u16, which: usize },
    Abandon { which: usize },
    Inspect { id: u16 },
    Deliver { which: usize },
    Repeat { which: usize },
    Lose { which: usize },
    Pass(Duration),
    Sweep { id: u16 },
    Reconnect { id: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let id = 1u16..=4;
    let which = any::<usize>();
    let wait = prop_oneof![Just(Duration::ZERO), (1u64..30_000).prop_map(Duration::from_millis)];
    let ttl = prop_oneof![Just(TTL), (50u64..20_000).prop_map(Duration::from_millis)];
    let span =
        prop_oneof![Just(MS), Just(100 * MS), (0u64..12_000).prop_map(Duration::from_millis)];
    prop_oneof![
        3 => (id.clone(), wait).prop_map(|(id, wait)| Step::Acquire { id, wait }),
        2 => (id.clone(), which, ttl).prop_map(|(id, which, ttl)| Step::Renew { id, which, ttl }),
        2 => (id.clone(), which).prop_map(|(id, which)| Step::Release { id, which }),
        1 => which.prop_map(|which| Step::Abandon { which }),
        1 => id.clone().prop_map(|id| Step::Inspect { id }),
        24 => which.prop_map(|which| Step::Deliver { which }),
        2 => which.prop_map(|which| Step::Repeat { which }),
        2 => which.prop_map(|which| Step::Lose { which }),
        5 => span.prop_map(Step::Pass),
        1 => id.clone().prop_map(|id| Step::Sweep { id }),
        1 => id.prop_map(|id| Step::Reconnect { id }),
    ]
}

/// The cell, the requests, and the beliefs of the holders, which use the clocks of their nodes.
struct World {
    cell: TestCell,
    asked: Vec<(u16, Token)>,
    open: Vec<Token>,
    abandoned: Vec<Token>,
    beliefs: BTreeMap<Tenure, Belief>,
    heard: usize,
}

impl World {
    fn new() -> Self {
        Self {
            cell: TestCell::new(3, 1),
            asked: Vec::new(),
            open: Vec::new(),
            abandoned: Vec::new(),
            beliefs: BTreeMap::new(),
            heard: 0,
        }
    }

    fn ask(&mut self, id: u16) -> u64 {
        let token = Token(self.asked.len() as u64 + 1);
        self.asked.push((id, token));
        self.open.push(token);
        token.0
    }

    /// Any tenure that was granted.
    fn own_tenure(&self, which: usize) -> Option<Tenure> {
        let own: Vec<Tenure> = self.beliefs.keys().copied().collect();
        (!own.is_empty()).then(|| own[which % own.len()])
    }

    fn take(&mut self, step: &Step) {
        let letters = self.cell.letters.len();
        let place = |which: usize| which.checked_rem(letters);
        match *step {
            Step::Acquire { id, wait } => {
                let token = self.ask(id);
                self.cell.acquire(id, token, wait);
            }
            // A naive holder renews even a tenure that has lapsed.
            Step::Renew { id, which, ttl } => {
                if let Some(tenure) = self.own_tenure(which) {
                    let token = self.ask(id);
                    self.cell.renew(id, token, tenure, ttl);
                }
            }
            Step::Release { id, which } => {
                if let Some(tenure) = self.own_tenure(which) {
                    self.beliefs.get_mut(&tenure).expect("granted").release();
                    let token = self.ask(id);
                    self.cell.release(id, token, tenure);
                }
            }
            Step::Abandon { which } => {
                if let Some((id, token)) =
                    which.checked_rem(self.asked.len()).map(|i| self.asked[i])
                {
                    let now = self.cell.now;
                    if self.cell.shard(id).abandon(now, name(NAME), token) {
                        self.open.retain(|open| *open != token);
                        self.abandoned.push(token);
                    }
                    self.cell.collect();
                }
            }
            Step::Inspect { id } => {
                let token = Token(self.ask(id));
                let now = self.cell.now;
                self.cell.shard(id).inspect(now, token, name(NAME)).expect("room");
                self.cell.collect();
            }
            Step::Deliver { which } => {
                if let Some(place) = place(which) {
                    let letter = self.cell.letters.swap_remove(place);
                    self.cell.deliver(&letter).expect("not refused");
                }
            }
            Step::Repeat { which } => {
                if let Some(place) = place(which) {
                    let letter = self.cell.letters[place].clone();
                    self.cell.deliver(&letter).expect("not refused");
                }
            }
            Step::Lose { which } => {
                if let Some(place) = place(which) {
                    self.cell.letters.swap_remove(place);
                }
            }
            Step::Pass(span) => self.cell.pass(span),
            Step::Sweep { id } => {
                let now = self.cell.now;
                self.cell.shard(id).sweep(now, 4);
            }
            Step::Reconnect { id } => {
                let now = self.cell.clock(id);
                let everyone = self.cell.shard(id).config().cell.everyone();
                self.cell.shard(id).handle_reconnect(now, everyone);
                self.cell.collect();
            }
        }
        self.hear();
    }

    /// Applies new events to the requests and beliefs.
    fn hear(&mut self) {
        let events = self.cell.events[self.heard..].to_vec();
        self.heard = self.cell.events.len();
        for (_, event) in events {
            let Some(token) = event.token() else { continue };
            match event {
                Event::Granted { tenure, ttl, started_at, .. } => {
                    let ends_at = Drift::NONE.belief_ends_at(started_at, ttl);
                    let before = self.beliefs.last_key_value().map(|(tenure, _)| *tenure);
                    assert!(before < Some(tenure), "fences increase: {tenure} after {before:?}");
                    self.beliefs.insert(tenure, Belief::granted(tenure, ends_at));
                }
                Event::Renewed { tenure, ttl, started_at, .. } => {
                    let ends_at = Drift::NONE.belief_ends_at(started_at, ttl);
                    let belief =
                        self.beliefs.get_mut(&tenure).expect("only granted tenures are renewed");
                    belief.renewed(tenure, ends_at);
                }
                _ => {}
            }
            let place = self.open.iter().position(|open| *open == token);
            let Some(place) = place else { panic!("{token:?} was answered twice or abandoned") };
            self.open.swap_remove(place);
        }
        let now = self.cell.now;
        let held: Vec<&Belief> = self.beliefs.values().filter(|b| b.is_held(now)).collect();
        assert!(held.len() <= 1, "two holders: {held:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn no_schedule_makes_two_holders_or_leaves_state_behind(steps in vec(step(), 0..150)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        // The network works again and time passes: all requests are answered and no state is kept.
        for _ in 0..700 {
            for _ in 0..world.cell.letters.len() {
                world.take(&Step::Deliver { which: 0 });
            }
            world.take(&Step::Pass(100 * MS));
        }
        prop_assert!(world.open.is_empty(), "never answered: {:?}", world.open);
        prop_assert!(world.cell.letters.is_empty(), "messages left: {:?}", world.cell.letters);
        for id in 1..=4 {
            let shard = world.cell.shard(id);
            prop_assert_eq!(shard.rounds().count(), 0);
            prop_assert_eq!(shard.waiters(), 0);
            prop_assert_eq!(shard.poll_timeout(), None, "no wake-up is left");
        }
    }
}
