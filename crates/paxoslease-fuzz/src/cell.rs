//! A whole cell of correct nodes in a world that the fuzzer controls. The fuzzer delivers, repeats,
//! loses and reorders messages, moves time, writes to disks, crashes, stops and starts nodes, and
//! has clients acquire, renew, release and leave. The simulator's checker watches all of it.
//!
//! Unlike in the simulator, no step comes from a seed. Every step comes from the input, so that
//! coverage leads to schedules that chance does not find.

mod world;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_core::Rules;
use paxoslease_sim::Violation;

use world::World;

const STEPS_MAX: usize = 512;

/// The properties of the world.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Setup {
    /// Whether there is a proposer-only node beside the three members.
    proposer: bool,
    disks: bool,
    /// Two bits for each clock: right, too slow, too fast.
    rates: u32,
    prepared_only: bool,
}

/// The next step. Numbers select nodes, clients and packets modulo their count.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum CellStep {
    Pass {
        millis: u8,
    },
    Deliver {
        packet: u8,
    },
    /// Delivers a packet that remains in flight, to arrive again.
    Repeat {
        packet: u8,
    },
    Lose {
        packet: u8,
    },
    /// Delivers all packets to one node, in order.
    DeliverTo {
        node: u8,
    },
    /// Delivers all packets and completes all disk writes, until nothing is left.
    Settle,
    Wake {
        node: u8,
    },
    Sweep {
        node: u8,
    },
    /// A record becomes durable; the node does not know yet.
    Write {
        node: u8,
    },
    Confirm {
        node: u8,
    },
    Crash {
        node: u8,
        written: bool,
    },
    Stop {
        node: u8,
    },
    Start {
        node: u8,
    },
    Acquire {
        client: u8,
        node: u8,
        ttl: u8,
        wait: u8,
    },
    Renew {
        client: u8,
        node: u8,
        ttl: u8,
    },
    Release {
        client: u8,
        node: u8,
    },
    /// A client abandons its acquires; the node learns of it, or not.
    Leave {
        client: u8,
        told: bool,
    },
    /// A client reads an answer.
    Read {
        client: u8,
        answer: u8,
    },
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
    let setup = Setup::arbitrary(&mut input).ok()?;
    let mut world = World::new(rules, setup);
    for _ in 0..STEPS_MAX {
        if input.is_empty() || world.violation().is_some() {
            break;
        }
        let Ok(step) = CellStep::arbitrary(&mut input) else { break };
        world.step(step);
    }
    world.violation()
}
