//! More work than a cell can do: queues grow beyond every time limit, and once the load is gone the
//! cell works as before.

use std::cell::Cell;

use super::*;

/// With this, three nodes serve about 2,000 pairs of acquire and release a second.
const WORK_COST: Duration = Duration::from_micros(300);

/// The results of the pairs that began in one period.
#[derive(Default, Debug)]
struct Tally {
    asked: Cell<u64>,
    granted: Cell<u64>,
    /// Of those that were granted, in nanoseconds.
    slowest: Cell<u64>,
}

impl Simulation {
    /// Acquires and releases new names on each host at this rate, whatever became of earlier pairs.
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

/// The results of each second of a load.
fn seconds(cell: &mut Simulation, per_second: u64, count: usize) -> Vec<Rc<Tally>> {
    (0..count).map(|_| cell.load(per_second, SECOND)).collect()
}

#[test]
fn a_cell_recovers_once_an_overload_is_gone() {
    let mut cell = cell(&Setup::new(81, 3));
    cell.world.work_cost = WORK_COST;
    // Four times what the cell can serve, then a third of it.
    let over = seconds(&mut cell, 3000, 3);
    assert!(over.iter().any(|tally| tally.granted < tally.asked), "the cell was not overloaded");
    let after = seconds(&mut cell, 200, 20);
    cell.run_for(SECOND * 3);
    for tally in &after[16..] {
        let slowest = Duration::from_nanos(tally.slowest.get());
        assert!(tally.granted == tally.asked && slowest < SECOND / 20, "{after:?}");
    }
    cell.assert_sound();
}
