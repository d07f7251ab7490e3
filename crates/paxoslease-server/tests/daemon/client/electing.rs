//! Elections: one candidate leads, all clients know, and the next one leads at once.

use paxoslease_client::{Election, Leader, LeaderChange, LeaseGuard, Observer};

use super::{TTL, client};
use crate::harness::{Cell, until};

/// Waits until the observer sees this leader.
fn sees(observer: &mut Observer, guard: &LeaseGuard) {
    let leader = Leader { holder: guard.holder().to_owned(), fence: guard.fence() };
    let expected = Some(LeaderChange::Elected(leader));
    until("the leader is seen", || observer.next_blocking() == expected);
}

#[test]
fn a_leader_that_resigns_or_leaves_is_replaced_at_once() {
    let cell = Cell::three();
    let clients = [client(&cell, 0), client(&cell, 1), client(&cell, 2)];
    let candidate = |n: usize| Election::new(&clients[n], "boss").holder(format!("c{n}")).ttl(TTL);
    let mut observer = candidate(2).observe();
    let first = candidate(0).campaign_blocking().expect("elected");
    sees(&mut observer, &first);
    std::thread::scope(|scope| {
        let campaign = |n: usize| {
            let candidate = candidate(n);
            let campaign = scope.spawn(move || candidate.campaign_blocking().expect("elected"));
            cell[n].wait_for_waiters("boss", 1);
            campaign
        };
        let second = campaign(1);
        let fence = first.fence();
        first.release_blocking().expect("confirmed");
        let second = second.join().expect("no panic");
        assert!(second.is_held() && second.fence() > fence);
        sees(&mut observer, &second);
        let third = campaign(2);
        clients[1].shutdown_blocking();
        let third = third.join().expect("no panic");
        assert!(third.fence() > second.fence() && !second.is_held());
        sees(&mut observer, &third);
        let leader = candidate(0).leader_blocking().expect("answered").expect("there is a leader");
        assert_eq!(leader.holder, "c2");
    });
}
