//! A whole cell of correct nodes in the simulator's world, controlled by the fuzzer. The fuzzer
//! delivers, repeats, loses and reorders messages, moves time, crashes, stops and starts nodes, and
//! has clients acquire, renew, release and leave. The simulator's checker sees all of it.
//!
//! Unlike in a swarm, no step comes from a seed. Every step comes from the input, so that coverage
//! leads to schedules that chance does not find.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_core::{Cell, Drift, NodeId, Rules, Ttl};
use paxoslease_sim::algorithm::Tuning;
use paxoslease_sim::{Action, Clock, Link, Pattern, PaxosLease, Setup, Violation, World};

const STEPS_MAX: usize = 512;
const MEMBERS: u16 = 3;
const CLIENTS: usize = 4;
const NAMES: [&str; 2] = ["jobs/1", "jobs/2"];
const MAX_LEASE: u32 = 1000;
const DRIFT_PPM: u32 = 1000;

/// The properties of the world.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct CellSetup {
    /// Whether there is a proposer-only node beside the three members.
    proposer: bool,
    disks: bool,
    /// Two bits for each clock: right, too slow, too fast.
    rates: u32,
    prepared_only: bool,
}

/// The next step. Numbers select nodes, clients and messages modulo their count.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum CellStep {
    Pass { millis: u8 },
    Deliver { message: u8 },
    Repeat { message: u8 },
    Lose { message: u8 },
    DeliverTo { node: u8 },
    Settle,
    Crash { node: u8 },
    Stop { node: u8 },
    Start { node: u8 },
    Acquire { client: u8, node: u8, ttl: u8, wait: u8 },
    Renew { client: u8, node: u8, ttl: u8 },
    Release { client: u8, node: u8 },
    Leave { client: u8 },
}

/// Runs a cell with every rule in force.
///
/// # Panics
/// When a check fails.
pub fn cell(bytes: &[u8]) {
    if let Some(violation) = cell_with_rules(Rules::ALL, bytes) {
        panic!("{violation}");
    }
}

/// Like [`cell`], but with these rules, and returns the first violation. For tests of the checks.
#[must_use]
pub fn cell_with_rules(rules: Rules, bytes: &[u8]) -> Option<Violation> {
    let mut input = Unstructured::new(bytes);
    let CellSetup { proposer, disks, rates, prepared_only } =
        Arbitrary::arbitrary(&mut input).ok()?;
    let ids: Vec<NodeId> = (1..=MEMBERS).filter_map(NodeId::new).collect();
    let max_lease = Ttl::from_millis(MAX_LEASE).expect("not zero");
    let drift = Drift::new(DRIFT_PPM, Duration::ZERO).expect("in bounds");
    let setup = Setup::quiet(Cell::new(&ids, max_lease, drift).expect("a cell"));
    let nodes = MEMBERS + u16::from(proposer);
    let mut world = World::new(
        PaxosLease { rules, prepared_only },
        Setup {
            proposers: u16::from(proposer),
            clocks: (0..usize::from(nodes)).map(|place| clock(rates, place)).collect(),
            names: NAMES.map(str::to_owned).to_vec(),
            tuning: Tuning { reclaim_after: Duration::from_millis(50), ..Tuning::default() },
            // A write and an answer last longer than the shortest step.
            disk: disks.then_some((Duration::from_millis(3), Duration::from_millis(3))),
            client_link: Link::steady(Duration::from_millis(2)),
            ..setup
        },
    );
    let new_client = |place: usize| {
        let clock = clock(rates, usize::from(nodes) + place);
        world.add_client(clock, usize::from(place + 1 == CLIENTS), None)
    };
    let clients: Vec<_> = (0..CLIENTS).map(new_client).collect();
    world.run_for(Duration::from_millis(20));
    let held = world.filter(Pattern::default(), Action::Hold);
    for _ in 0..STEPS_MAX {
        if input.is_empty() || !world.violations().is_empty() {
            break;
        }
        let Ok(step) = CellStep::arbitrary(&mut input) else { break };
        let node_of = |number: u8| u16::from(number) % nodes + 1;
        let client_of = |number: u8| clients[usize::from(number) % CLIENTS];
        // Every step has an instant of its own.
        world.run_for(Duration::from_micros(1));
        match step {
            // Timers fire, disks finish their writes, and clients read their answers.
            CellStep::Pass { millis } => {
                world.run_for(Duration::from_millis(u64::from(millis) * 4));
            }
            CellStep::Deliver { message } => world.deliver_one(held, message.into(), false),
            // The message remains in flight, to arrive again.
            CellStep::Repeat { message } => world.deliver_one(held, message.into(), true),
            CellStep::Lose { message } => world.lose_one(held, message.into()),
            CellStep::DeliverTo { node } => {
                let to = Some(node_of(node));
                world.deliver(held, Pattern { to, ..Pattern::default() });
            }
            // All messages arrive for a while.
            CellStep::Settle => {
                for _ in 0..20 {
                    world.deliver(held, Pattern::default());
                    world.run_for(Duration::from_millis(1));
                }
            }
            CellStep::Crash { node } => world.crash(node_of(node)),
            CellStep::Stop { node } => world.stop(node_of(node)),
            CellStep::Start { node } => world.start(node_of(node)),
            CellStep::Acquire { client, node, ttl, wait } => {
                let wait = Duration::from_millis(u64::from(wait) * 8);
                world.acquire(client_of(client), node_of(node), ttl_of(ttl), wait);
            }
            // Even if the tenure is over, as careless clients do (P5).
            CellStep::Renew { client, node, ttl } => {
                world.renew(client_of(client), node_of(node), ttl_of(ttl));
            }
            CellStep::Release { client, node } => world.release(client_of(client), node_of(node)),
            // The client disconnects (P8).
            CellStep::Leave { client } => world.vanish(client_of(client)),
        }
        // So that the work of a step is bounded.
        while world.held(held).count() > 128 {
            world.lose_one(held, 0);
        }
    }
    world.violations().first().cloned()
}

fn clock(rates: u32, place: usize) -> Clock {
    let ppm = [0, -(DRIFT_PPM as i32), DRIFT_PPM as i32, 0][(rates >> (place * 2) & 3) as usize];
    Clock::new(Duration::from_secs(1000 + place as u64), ppm, Duration::ZERO)
}

/// 50 ms up to a little more than `max_lease`, which is refused.
fn ttl_of(number: u8) -> Duration {
    Duration::from_millis(50 + u64::from(number) * 4)
}
