//! A whole cell of honest nodes in a world that the fuzzer runs: it delivers, repeats, loses and
//! reorders messages, moves time, writes to disks, crashes, stops and starts nodes, and has clients
//! ask, believe, renew, release and leave. The simulator's checkers watch all of it.
//!
//! Unlike the simulator, nothing is drawn from a seed: every single step is the input's, so that
//! coverage can lead to schedules that chance does not find.

mod world;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_core::Rules;
use paxoslease_sim::Violation;

use world::World;

const STEPS_MAX: usize = 512;

/// What kind of world it is.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Setup {
    /// Nodes that only propose, beside three members: none or one.
    proposer: bool,
    disks: bool,
    /// Two bits for each clock: too slow, right, too fast.
    rates: u32,
    prepared_only: bool,
}

/// What happens next. Nodes, clients and letters are whatever the number comes to among those that
/// there are.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Pass {
        millis: u8,
    },
    Deliver {
        letter: u8,
    },
    /// And it stays on its way, to come again.
    Repeat {
        letter: u8,
    },
    Lose {
        letter: u8,
    },
    /// Delivers what is on its way to one node, in order.
    DeliverTo {
        node: u8,
    },
    /// Everything between everybody, until nothing is left, and the disks too.
    Settle,
    Wake {
        node: u8,
    },
    Sweep {
        node: u8,
    },
    /// A record reaches the disk; the node does not know yet.
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
    /// A client waits for its acquires no more; the node is told, or not.
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

/// What happens in a cell, with every rule in force.
///
/// # Panics
/// When a checker finds that something is not true.
pub fn cell(bytes: &[u8]) {
    if let Some(violation) = cell_by(Rules::ALL, bytes) {
        panic!("{violation}");
    }
}

/// As [`cell`], for tests of the checks: by these rules, and with what broke first.
#[must_use]
pub fn cell_by(rules: Rules, bytes: &[u8]) -> Option<Violation> {
    let mut input = Unstructured::new(bytes);
    let setup = Setup::arbitrary(&mut input).ok()?;
    let mut world = World::new(rules, setup);
    for _ in 0..STEPS_MAX {
        if input.is_empty() || world.violation().is_some() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        world.step(step);
    }
    world.violation()
}
