//! Loads on servers that a test plays: a millisecond from question to answer, and no clock.

use std::time::Duration;

use paxoslease_load::{Connections, Extent, Plan, Report, Session, Workload};

pub(super) const MS: Duration = Duration::from_millis(1);

/// Four in flight on two connections to three servers, after ten milliseconds that do not count.
pub(super) fn plan(workload: Workload, extent: Extent) -> Plan {
    let warmup = 10 * MS;
    Plan { extent, warmup, in_flight: 4, connections: 2, ..Plan::new(["a", "b", "c"], workload) }
}

/// Answers what came on a connection; answers may go to any connection.
pub(super) type Serve<'a> = &'a mut dyn FnMut(usize, &[u8], &mut [Vec<u8>]);

pub(super) struct Play<P> {
    pub(super) session: Session<P>,
    pub(super) now: Duration,
    plan: Plan,
    links: usize,
}

impl<P: Connections> Play<P> {
    pub(super) fn new(plan: Plan, mut protocol: P) -> Self {
        let links = protocol.routes().len();
        (0..links).for_each(|link| protocol.connected(link));
        Self { session: Session::new(&plan, protocol), now: Duration::ZERO, plan, links }
    }

    pub(super) fn step(&mut self, serve: Serve<'_>) {
        self.session.pump(self.now).expect("it goes on");
        self.now += MS;
        let mut replies = vec![Vec::new(); self.links];
        while let Some(link) = self.session.outgoing().next_pending() {
            let asked = std::mem::take(self.session.outgoing().unsent(link));
            serve(link, &asked, &mut replies);
        }
        for (link, reply) in replies.iter().enumerate() {
            let read = self.session.received(link, reply, self.now).expect("understood");
            assert_eq!(read, reply.len(), "everything was whole");
        }
    }

    pub(super) fn run(&mut self, serve: Serve<'_>) -> Report {
        for _ in 0..100_000 {
            self.step(serve);
            if self.session.is_done() {
                return self.session.report(&self.plan);
            }
        }
        panic!("a load without end");
    }
}
