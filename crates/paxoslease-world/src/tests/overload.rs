//! More work than a cell can do: queues grow beyond every time limit, and once the load is gone the
//! cell works as before.

use std::cell::Cell;

use super::*;

/// With this, three nodes are good for some 2,000 pairs of acquire and release a second.
const WORK_COST: Duration = Duration::from_micros(300);

/// How pairs that began in a while went.
#[derive(Default, Debug)]
struct Tally {
    asked: Cell<u64>,
    granted: Cell<u64>,
    /// Of those that were granted, in nanoseconds.
    slowest: Cell<u64>,
}

impl Simulation {
    /// Pairs of acquire and release of names of their own, so many a second on each host, however
    /// the ones before go.
    fn load(&mut self, per_second: u64, span: Duration) -> Rc<Tally> {
        let tally = Rc::new(Tally::default());
        let pause = SECOND / u32::try_from(per_second).expect("few");
        let until = self.world.now() + span.as_nanos() as u64;
        while self.world.now() < until {
            for host in 0..self.world.len() {
                let (node, id) = (self.node(host), self.next_task());
                let (timer, tally) = (self.timer(), Rc::clone(&tally));
                tally.asked.set(tally.asked.get() + 1);
                self.spawn(host, async move {
                    let asked_at = timer.now();
                    let granted = node.try_acquire(&format!("pair/{id}"), TTL).await;
                    if granted.is_ok() {
                        tally.granted.set(tally.granted.get() + 1);
                        let took = timer.now() - asked_at;
                        tally.slowest.set(tally.slowest.get().max(took));
                    }
                });
            }
            self.run_for(pause);
        }
        tally
    }
}

/// One second after another of a load, and what became of what was asked in each.
fn seconds(cell: &mut Simulation, per_second: u64, count: usize) -> Vec<Rc<Tally>> {
    (0..count).map(|_| cell.load(per_second, SECOND)).collect()
}

#[test]
fn a_cell_recovers_once_an_overload_is_gone() {
    let mut cell = cell(&Setup::new(81, 3));
    cell.world.work_cost = WORK_COST;
    // Four times as much as it can do, then a third.
    let over = seconds(&mut cell, 3000, 3);
    assert!(over.iter().any(|tally| tally.granted < tally.asked), "that was not too much");
    let after = seconds(&mut cell, 200, 20);
    cell.run_for(SECOND * 3);
    for tally in &after[16..] {
        let slowest = Duration::from_nanos(tally.slowest.get());
        assert!(tally.granted == tally.asked && slowest < SECOND / 20, "{after:?}");
    }
    cell.assert_sound();
}
