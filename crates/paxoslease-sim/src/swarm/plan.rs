//! Generates a world: its cell, clocks, links, disks and clients.

use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Ttl};

use super::Options;
use super::faults::{FaultPlan, Faults};
use crate::algorithm::Tuning;
use crate::client::Habits;
use crate::clock::Clock;
use crate::network::Link;
use crate::rng::Rng;
use crate::trace::TrueTime;
use crate::world::Setup;

/// Everything that a seed decides before the world begins.
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) clients: Vec<(Clock, usize, Habits)>,
    pub(super) faults: FaultPlan,
}

/// Clocks change their rates within this many nanoseconds of true time.
const WANDER_NANOS: u64 = 60_000_000_000;

impl Plan {
    pub(super) fn draw(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::new(seed, 4);
        let faults = FaultPlan::draw(&mut rng, options.faults);
        let drawn_nodes = rng.pick(&[1, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7, 8, 9]);
        let members = options.nodes.unwrap_or(drawn_nodes);
        let drawn_proposers = rng.pick(&[0, 0, 0, 1, 2]);
        let proposers = options.proposers.unwrap_or(drawn_proposers);
        let drawn_names = rng.pick(&[1, 1, 1, 2, 3, 5]);
        let names = options.names.unwrap_or(drawn_names);
        let drawn_clients = rng.between(1, 4 * names as u64 + 4) as u32;
        let clients = options.clients.unwrap_or(drawn_clients);

        let ppm = rng.pick(&[0, 100, 1000, 20_000, 100_000]);
        // A clock that counts nanoseconds has a granularity of one.
        let granularity =
            Duration::from_nanos(rng.pick(&[1, 1000, 1_000_000, 4_000_000, 15_000_000]));
        let drift = Drift::new(ppm, granularity).expect("in bounds");
        let max_lease = Ttl::from_millis(rng.between(100, 2000) as u32).expect("not zero");
        let ids: Vec<NodeId> = (1..=members).map(|id| NodeId::new(id).expect("an id")).collect();
        let cell = Cell::new(&ids, max_lease, drift).expect("the draws are in bounds");
        let mut clock = {
            let mut rng = Rng::new(seed, 5);
            move || draw_clock(&mut rng, drift)
        };
        let setup = Setup {
            cell,
            proposers,
            clocks: (0..members + proposers).map(|_| clock()).collect(),
            names: (1..=names).map(|name| format!("jobs/{name}")).collect(),
            tuning: draw_tuning(&mut rng),
            link: draw_link(&mut rng, faults.is_lossy()),
            client_link: draw_link(&mut rng, faults.is_lossy()),
            disk: rng.chance(850).then(|| {
                let min = Duration::from_micros(rng.between(1, 500));
                (min, min + rng.millis(0, 30))
            }),
            timer_late_max: rng.pick(&[Duration::ZERO, Duration::from_millis(20)]),
            tick: rng.millis(10, 100),
            seed,
            keep: options.keep,
        };
        let tame = options.faults == Faults::None;
        let mut durable = {
            // These draws are separate, so that the other worlds stay as they are.
            let mut rng = Rng::new(seed, 6);
            let is_durable = setup.disk.is_some() && rng.chance(500);
            move || if is_durable && rng.chance(500) { rng.between(100, 1000) as u32 } else { 0 }
        };
        let clients = (0..clients)
            .map(|client| {
                let name = client as usize % names;
                let habits = draw_habits(&mut rng, max_lease.as_duration(), tame);
                (clock(), name, Habits { durable_permille: durable(), ..habits })
            })
            .collect();
        Self { setup, clients, faults }
    }
}

/// A clock within the drift bound, often at its edge.
fn draw_clock(rng: &mut Rng, drift: Drift) -> Clock {
    let ppm = drift.ppm() as i32;
    let rate = |rng: &mut Rng| match rng.below(4) {
        0 => ppm,
        1 => -ppm,
        _ => rng.between(0, 2 * ppm as u64) as i32 - ppm,
    };
    let offset = Duration::from_micros(rng.below(1 << 40));
    let mut clock = Clock::new(offset, rate(rng), drift.granularity());
    let mut at = 0;
    for _ in 0..rng.below(4) {
        at += rng.below(WANDER_NANOS);
        clock = clock.then(TrueTime(at), rate(rng));
    }
    clock
}

fn draw_tuning(rng: &mut Rng) -> Tuning {
    Tuning {
        attempt_timeout: rng.millis(5, 100),
        attempt_timeout_min: rng.millis(1, 20),
        request_timeout: rng.millis(50, 2000),
        reclaim_after: rng.millis(0, 500),
        stagger_max: rng.millis(1, 5),
    }
}

fn draw_link(rng: &mut Rng, lossy: bool) -> Link {
    let delay_min = Duration::from_micros(rng.pick(&[0, 10, 500, 2000]));
    let delay_max = delay_min + Duration::from_micros(rng.pick(&[0, 100, 2000, 10_000]));
    let straggle_max = rng.millis(1, 3000);
    let mut permille = |max| if lossy { rng.below(max) as u32 } else { 0 };
    Link {
        delay_min,
        delay_max,
        straggle_permille: permille(50),
        straggle_max,
        loss_permille: permille(300),
        duplicate_permille: permille(200),
    }
}

fn draw_habits(rng: &mut Rng, max_lease: Duration, tame: bool) -> Habits {
    let shortest = Ttl::MIN.as_duration();
    let mut ttl = (shortest, max_lease);
    if rng.chance(500) {
        let fixed = rng.span(ttl);
        ttl = (fixed, fixed);
    }
    let mut permille = |often: u32, max: u64| {
        if !tame && rng.chance(often) { rng.below(max) as u32 } else { 0 }
    };
    let (wander_permille, vanish_permille) = (permille(500, 1000), permille(300, 300));
    let (lapse_permille, slow_permille) = (permille(300, 500), permille(200, 300));
    let naive = permille(200, 1000) > 0;
    Habits {
        ttl,
        hold: (Duration::ZERO, rng.pick(&[Duration::from_millis(20), max_lease, max_lease * 4])),
        think: (Duration::ZERO, rng.pick(&[Duration::from_millis(5), max_lease])),
        wait: rng.pick(&[Duration::ZERO, max_lease / 2, max_lease * 2]),
        patience: rng.millis(20, 1000),
        wander_permille,
        vanish_permille,
        lapse_permille,
        durable_permille: 0,
        slow_permille,
        slow_max: max_lease * 2,
        naive,
    }
}
