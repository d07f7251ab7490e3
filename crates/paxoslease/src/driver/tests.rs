//! A driver without a network.

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::node::{Run, make_driver};
use crate::stable::{Startup, Wishes};
use crate::ticket::{Stage, Ticket};
use crate::tls::CurrentTls;
use paxoslease_core::{Holder, Label};

/// The only member of a new cell.
pub(crate) fn alone(clock: &Clock) -> Driver {
    let config = Config::new("test", 1).peer(1, "127.0.0.1:1").ephemeral().shards(1);
    let settings = config.settings().expect("valid");
    let max_lease = settings.cell.max_lease();
    let wishes = Wishes { new_cell: true, reset: false, max_lease, counter: 1 };
    let startup = Startup::decide(None, None, wishes);
    let board = Board::new(&settings, Box::new(|| None), CurrentTls::default());
    let run = Run { seed: 1, wall_counter: 1 };
    make_driver(&settings, &startup, 0, run, clock, Arc::new(board))
}

/// Who dials nobody needs none.
struct NoSockets;

impl Sockets for NoSockets {
    fn dial(&mut self, _: NodeId, _: &str) -> ConnId {
        unreachable!("there is no other node")
    }

    fn send(&mut self, _: ConnId, _: &[u8]) -> usize {
        unreachable!("there is no other node")
    }

    fn close(&mut self, _: ConnId) {}

    fn is_node(&self, _: ConnId, _: NodeId) -> bool {
        false
    }

    fn hand_over(&mut self, _: ConnId, _: u16) {}
}

fn held(driver: &Driver, now: Instant) -> usize {
    let shard = driver.shard();
    (0..shard.slot_count()).filter(|slot| shard.lease_in(now, *slot, |_| true).is_some()).count()
}

#[test]
fn a_lease_granted_to_a_caller_that_left_is_given_back() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    driver.tick(&mut NoSockets, now);
    let label = Label::new(Name::new("x").expect("a name"), Holder::NONE);
    let ticket = Arc::new(Ticket::new());
    let (ttl, wait) = (Duration::from_secs(10), Duration::ZERO);
    driver.command(now, Command::Acquire { ticket: Arc::clone(&ticket), label, ttl, wait });
    assert_eq!(held(&driver, now), 1, "its own acceptor is a majority");
    ticket.lock().stage = Stage::Left;
    driver.command(now, Command::Abandon { ticket });
    driver.flush(&mut NoSockets, now);
    assert_eq!(held(&driver, now), 0);
    assert!(driver.requests.is_empty(), "nobody is waited for");
}
