//! Durable leases, through the handle that daemons use.

use paxoslease_node::Remote;
use paxoslease_node::front::{Answer, Holder, Lasts, LiveLease, Name, Request};

use super::*;
use crate::simulation::Simulation;

const MINUTE: Duration = Duration::from_secs(60);

fn name() -> Name<'static> {
    Name::new("x").expect("a name")
}

fn lasts(span: Duration) -> Lasts {
    Lasts::from_millis(span.as_millis() as u64).expect("not zero")
}

fn acquire(remote: &Remote, lasts: Lasts, wait: Duration) -> paxoslease_node::Asking {
    let lease = (name(), Holder::from_bytes(b"\xffvalue").expect("short")).into();
    let (ttl, permits, is_retried, lasts) = (Duration::ZERO, None, false, Some(lasts));
    remote.ask(Request::Acquire { lease, ttl, wait, permits, is_retried, lasts })
}

impl Simulation {
    fn take_durable(&mut self, host: usize, lasts: Lasts) -> u64 {
        let asking = acquire(&self.node(host).remote(), lasts, Duration::ZERO);
        match self.run(host, asking) {
            Answer::Granted { tenure, .. } => tenure.fence(),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, host: usize, request: Request<'static>) -> Answer {
        let asking = self.node(host).remote().ask(request);
        self.run(host, asking)
    }

    fn holder_of_x(&mut self, host: usize) -> Option<Box<LiveLease>> {
        match self.ask(host, Request::Inspect { lease: name().into() }) {
            Answer::Inspected(seen) => seen,
            other => panic!("{other:?}"),
        }
    }
}

fn three() -> Simulation {
    cell(&Setup { max_lease: Duration::from_secs(10), ..Setup::new(7, 3) })
}

#[test]
fn a_durable_lease_outlasts_max_lease_and_keeps_its_value() {
    let mut cell = three();
    let fence = cell.take_durable(0, lasts(MINUTE));
    cell.run_for(MINUTE - SECOND);
    let seen = cell.holder_of_x(1).expect("it lasts");
    assert_eq!((seen.tenure.fence(), seen.label.holder().as_bytes()), (fence, &b"\xffvalue"[..]));
    let left = seen.durable.expect("it is durable").as_millis().expect("it ends");
    assert!((1..=1100).contains(&left), "{left}");
    assert_eq!(cell.status(2).durable, 1);
    cell.run_for(SECOND * 2);
    assert_eq!(cell.holder_of_x(1), None);
    assert_eq!(cell.status(2).durable, 0);
}

#[test]
fn a_durable_lease_survives_the_crash_of_all_nodes_at_once() {
    let mut cell = three();
    let fence = cell.take_durable(0, Lasts::FOREVER);
    (0..3).for_each(|host| cell.cut_power(host));
    (0..3).for_each(|host| cell.start(host));
    cell.run_for(SECOND * 25);
    let seen = cell.holder_of_x(1).expect("it lasts");
    assert_eq!((seen.tenure.fence(), seen.label.holder().as_bytes()), (fence, &b"\xffvalue"[..]));
    let released = cell.ask(2, Request::Release { lease: name().into(), fence, is_durable: true });
    assert_eq!(released, Answer::Released { held: Some(true), confirmed: true });
    cell.run_for(MINUTE);
    assert_eq!(cell.holder_of_x(0), None);
}

#[test]
fn the_end_of_a_lease_can_be_set_through_any_node() {
    let mut cell = three();
    let fence = cell.take_durable(0, lasts(SECOND));
    let lease = || name().into();
    let later = Request::Keep { lease: lease(), fence, lasts: lasts(MINUTE) };
    assert!(matches!(cell.ask(1, later), Answer::Kept { .. }));
    cell.run_for(MINUTE / 2);
    assert_eq!(cell.holder_of_x(0).expect("it lasts").tenure.fence(), fence);
    let sooner = Request::Keep { lease: lease(), fence, lasts: lasts(SECOND / 10) };
    assert!(matches!(cell.ask(2, sooner), Answer::Kept { .. }));
    cell.run_for(SECOND / 5);
    assert_eq!(cell.holder_of_x(0), None);
    let over = Request::Keep { lease: lease(), fence, lasts: lasts(MINUTE) };
    assert_eq!(cell.ask(1, over), Answer::NotHeld);
    assert!(cell.take_durable(1, lasts(SECOND)) > fence);
}

#[test]
fn a_plain_renewal_prolongs_a_durable_lease() {
    let mut cell = three();
    let fence = cell.take_durable(0, lasts(SECOND));
    let renew = Request::Renew { lease: name().into(), fence, ttl: SECOND * 5 };
    assert!(matches!(cell.ask(1, renew), Answer::Kept { .. }));
    cell.run_for(SECOND * 4);
    assert_eq!(cell.holder_of_x(0).expect("it lasts").tenure.fence(), fence);
    cell.run_for(SECOND * 2);
    assert_eq!(cell.holder_of_x(0), None);
}

#[test]
fn a_durable_lease_whose_caller_left_is_released() {
    let mut cell = three();
    for delay in [0, 100, 300, 600, 1000, 2000].map(Duration::from_micros) {
        let asking = acquire(&cell.node(0).remote(), Lasts::FOREVER, Duration::ZERO);
        cell.run_for(delay);
        drop(asking);
        cell.run_for(SECOND);
        assert_eq!(cell.holder_of_x(1), None, "left after {delay:?}");
    }
}

#[test]
fn a_peek_shows_what_this_node_stores() {
    let mut cell = three();
    let peek = || Request::Peek { lease: name().into() };
    assert_eq!(cell.ask(1, peek()), Answer::Inspected(None));
    let fence = cell.take_durable(0, lasts(MINUTE));
    cell.run_for(SECOND / 10);
    let Answer::Inspected(Some(seen)) = cell.ask(1, peek()) else { panic!("it is stored") };
    assert_eq!(seen.tenure.fence(), fence);
}
