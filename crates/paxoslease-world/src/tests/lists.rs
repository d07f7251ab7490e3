//! Lists take a bounded share of every turn of a shard, whatever a client asks for.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use paxoslease_node::front::{Answer, Cursor, Filter, Holder, Label, Name, PageMax, Request};
use paxoslease_node::simulation::{LIST_SLOTS_PER_TURN, LISTS_WAITING_MAX};
use paxoslease_node::{Asking, Remote};

/// The longest ttl of these cells, so that no lease expires while it is listed.
const TTL: Duration = Duration::from_secs(5);

/// A cell of one node with this many leases, each in a slot of its own. No slot is vacant.
fn holding(leases: usize) -> (Simulation, Remote) {
    let mut simulation = cell(&Setup::new(1, 1));
    let remote = simulation.node(0).remote();
    let asker = remote.clone();
    simulation.run(0, async move {
        for number in 0..leases {
            let name = format!("n/{number:04}");
            let lease = Name::new(&name).expect("a name").into();
            let answer = asker.ask(Request::acquire(lease, TTL, Duration::ZERO)).await;
            assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
        }
    });
    (simulation, remote)
}

fn list(remote: &Remote, cursor: Cursor, prefix: &str, max: PageMax) -> Asking {
    remote.ask(Request::List { cursor, prefix: prefix.into(), filter: Filter::ALL, max })
}

fn poll(asking: &mut Asking) -> Option<Answer> {
    match Pin::new(asking).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Lists everything `askers` times at once. Returns the names that each list found, and the number
/// of leases listed in each step of the world.
fn list_all(
    simulation: &mut Simulation,
    remote: &Remote,
    askers: usize,
    limit: u32,
) -> (Vec<Vec<String>>, Vec<usize>) {
    let ask = |cursor| list(remote, cursor, "n/", PageMax::leases(limit));
    let mut asking: Vec<_> = (0..askers).map(|_| Some(ask(Cursor::START))).collect();
    let (mut found, mut shares) = (vec![Vec::new(); askers], Vec::new());
    while asking.iter().any(Option::is_some) {
        simulation.world.step();
        let mut share = 0;
        for (asker, one) in asking.iter_mut().enumerate() {
            let Some(answer) = one.as_mut().and_then(poll) else { continue };
            let Answer::Listed { leases, next } = answer else { panic!("{answer:?}") };
            assert!(leases.len() <= limit as usize);
            share += leases.len();
            found[asker].extend(leases.iter().map(|seen| seen.label.name().to_string()));
            *one = next.map(&ask);
        }
        shares.push(share);
    }
    (found, shares)
}

#[test]
fn many_lists_share_the_slots_of_a_turn_and_all_complete() {
    const LEASES: usize = 1500;
    let (mut simulation, remote) = holding(LEASES);
    let expected: Vec<String> = (0..LEASES).map(|number| format!("n/{number:04}")).collect();
    for limit in [7, 100, 1000] {
        let (found, shares) = list_all(&mut simulation, &remote, 100, limit);
        // No slot is vacant, so each listed lease is a visited slot.
        let most = shares.iter().copied().max().unwrap_or_default();
        assert!((1..=LIST_SLOTS_PER_TURN).contains(&most), "{most} slots in a turn");
        for mut names in found {
            names.sort_unstable();
            assert_eq!(names, expected);
        }
    }
}

#[test]
fn a_list_that_finds_nothing_delays_no_other_list() {
    let (mut simulation, remote) = holding(1500);
    let mut vain: Vec<_> =
        (0..10).map(|_| list(&remote, Cursor::START, "none", PageMax::leases(1000))).collect();
    let mut short = list(&remote, Cursor::START, "n/", PageMax::leases(7));
    let mut turns = 0;
    while poll(&mut short).is_none() {
        let done = vain.iter_mut().filter_map(poll).count();
        assert_eq!(done, 0, "a list of 1500 slots was completed before one of 7");
        simulation.world.step();
        turns += 1;
    }
    assert!(turns <= 3 * 11, "{turns}");
    for asking in vain {
        let answer = simulation.run(0, asking);
        assert_eq!(answer, Answer::Listed { leases: Vec::new(), next: None });
    }
}

#[test]
fn waiting_lists_are_bounded_and_answered_when_the_node_stops() {
    let (mut simulation, remote) = holding(1500);
    let ask = |_| list(&remote, Cursor::START, "n/", PageMax::leases(1000));
    let (mut waiting, mut last): (Vec<_>, _) = ((0..LISTS_WAITING_MAX).map(ask).collect(), ask(0));
    let refused = loop {
        match poll(&mut last) {
            Some(answer) => break answer,
            None => simulation.world.step(),
        };
    };
    assert_eq!(refused, Answer::TooManyLists(LISTS_WAITING_MAX));
    simulation.world.stop(0);
    let told: Vec<_> = waiting.iter_mut().filter_map(poll).collect();
    assert_eq!(told.len(), LISTS_WAITING_MAX, "a list was left without an answer");
    assert!(told.contains(&Answer::Stopping));
}

#[test]
fn a_page_has_a_bound_in_bytes_and_the_next_one_continues() {
    let (mut simulation, remote) = holding(100);
    let longest = "\u{1}".repeat(Name::LEN_MAX);
    let label = Label::new(Name::new(&longest).expect("a name"), Holder::NONE);
    assert!(PageMax::lease_bytes(&label) > 6 * Name::LEN_MAX);
    assert!(PageMax::lease_bytes(&label) < PageMax::LEASE_BYTES);
    let each =
        PageMax::lease_bytes(&Label::new(Name::new("n/0000").expect("a name"), Holder::NONE));
    let max = PageMax { leases: 1000, bytes: 10 * each };
    let (mut cursor, mut listed) = (Some(Cursor::START), 0);
    while let Some(at) = cursor {
        let answer = simulation.run(0, list(&remote, at, "", max));
        let Answer::Listed { leases, next } = answer else { panic!("{answer:?}") };
        assert_eq!(leases.len(), 10);
        (cursor, listed) = (next, listed + leases.len());
    }
    assert_eq!(listed, 100);
}
