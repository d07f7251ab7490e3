//! The members of a running cell change, with real nodes on loopback sockets.

mod cell;

use std::net::TcpListener;
use std::time::Duration;

use cell::{Data, TTL, change_members, listen, metrics, status, take, until};
use paxoslease_core::Name;
use paxoslease_holder::{MembersChange, MembersError, MembersPlan, Membership};
use paxoslease_node::{Config, LeaseState, Node, block_on};
use paxoslease_wire::ShardId;

fn start(config: Config, listener: TcpListener) -> Node {
    block_on(Node::start_on(config, listener)).expect("starts")
}

fn ask(node: &Node, change: MembersChange) -> Result<MembersPlan, MembersError> {
    change_members(node, change, false)
}

fn replace(remove: u16, add: u16, address: &str) -> MembersChange {
    MembersChange::Edit { remove: vec![remove], add: vec![(add, address.to_owned())] }
}

/// Why a change is refused.
fn refused(node: &Node, change: MembersChange) -> String {
    match ask(node, change) {
        Err(MembersError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_outlives_the_replacement_of_a_member_that_is_down() {
    metrics();
    let data = Data::new("replace");
    let (mut listeners, addresses): (Vec<_>, Vec<_>) = (1..=4).map(|_| listen()).unzip();
    let list: Vec<(u16, &str)> = (1..).zip(addresses.iter().map(String::as_str)).collect();
    let newcomer_listener = listeners.pop().expect("four");
    let founder = |(listener, id): (TcpListener, u16)| {
        start(data.config(id, &list[..3]).new_cell(true), listener)
    };
    let mut members: Vec<Node> = listeners.into_iter().zip(1..).map(founder).collect();
    members.iter().for_each(|node| block_on(node.ready()).expect("the cell is founded"));
    assert_eq!(status(&members[0]).members, [1, 2, 3]);
    let lease = take(&members[0], "kept");

    // It need not list itself.
    let mut config = data.config(4, &list[..3]);
    config.listen.peers = Some(list[3].1.to_owned());
    let newcomer = start(config, newcomer_listener);
    until("the newcomer has heard of the cell", || status(&newcomer).epoch == 1);
    assert_eq!(status(&newcomer).membership, Membership::Outside);
    let why = refused(&newcomer, replace(3, 4, list[3].1));
    assert!(why.contains("not a member of the cell: ask a member"), "{why}");
    let why = refused(&members[0], replace(9, 4, list[3].1));
    assert!(why.contains("node 9 is not a member"), "{why}");
    let why = refused(&members[0], replace(3, 5, "127.0.0.1:1"));
    assert!(why.contains("node 5 does not answer"), "{why}");
    let why = refused(&members[0], MembersChange::Abort);
    assert!(why.contains("no change is under way"), "{why}");

    let third = members.pop().expect("three");
    third.shutdown_blocking();
    drop(third);
    let plan = ask(&members[0], replace(3, 4, list[3].1)).expect("a majority is up");
    assert_eq!((plan.from, plan.to, plan.decided), (vec![1, 2, 3], vec![1, 2, 4], Some(2)));
    assert_eq!(plan.unreachable, [3]);
    // It lasts as long as the lease, which is renewed every few seconds.
    let why = refused(&members[0], replace(2, 4, list[3].1));
    assert!(why.contains("a change from [1, 2, 3] to [1, 2, 4] is under way"), "{why}");
    for node in members.iter().chain([&newcomer]) {
        until("the change has ended", || {
            assert!(lease.is_held());
            let status = status(node);
            status.members == [1, 2, 4] && status.change.is_none()
        });
        assert_eq!(status(node).membership, Membership::Member);
    }

    // No alert goes on about a node that is not needed any more.
    for gone in ["paxoslease_peer_up{peer=3}", "paxoslease_members{set=new}"] {
        until(gone, || metrics().get(gone).is_some_and(|value| value.is_nan()));
    }

    // The lease moved to the new members by its own renewals.
    assert_eq!(lease.state(), LeaseState::Held);
    let seen = block_on(newcomer.inspect("kept")).expect("a quorum").expect("held");
    assert_eq!(seen.fence, lease.fence());
    assert!(newcomer.try_acquire("kept", TTL).blocking().is_err());
    let fence = lease.fence();
    lease.release_blocking().expect("released");
    assert!(take(&newcomer, "kept").fence() > fence);

    // The node that was removed comes back, hears of the change, and serves its clients.
    let third = Node::start_blocking(data.config(3, &list[..3])).expect("starts");
    until("it has heard of the change", || status(&third).members == [1, 2, 4]);
    assert_eq!(status(&third).membership, Membership::Outside);
    let last = take(&third, "kept");
    assert!(last.fence() > fence);
}

/// Every node would keep it on disk, show it to operators, and dial it for ever.
#[test]
fn an_address_that_no_node_can_dial_is_refused() {
    let data = Data::new("address");
    let (listener, own) = listen();
    let node = start(data.config(1, &[(1, &own)]).new_cell(true), listener);
    block_on(node.ready()).expect("the cell is founded");
    for address in ["x", ":0", "host:0", "host:99999", "\x1b[2J:7401", "host\n:7401", "0.0.0.0:1"] {
        let address = address.to_owned();
        for change in [
            MembersChange::Edit { remove: vec![], add: vec![(9, address.clone())] },
            MembersChange::Set(vec![(1, Some(address.clone()))]),
            MembersChange::Set(vec![(1, None), (9, Some(address.clone()))]),
            MembersChange::Address(vec![(1, address.clone())]),
        ] {
            let why = refused(&node, change);
            assert!(why.starts_with(&format!("{address:?} is not an address for node")), "{why}");
        }
    }
    assert_eq!(status(&node).epoch, 1);
}

#[test]
fn a_node_that_no_cell_knows_changes_no_members() {
    let data = Data::new("blank");
    let (listener, address) = listen();
    let blank = start(data.config(1, &[(1, &address), (2, "127.0.0.1:1")]), listener);
    assert_eq!(status(&blank).membership, Membership::Blank);
    let why = refused(&blank, replace(2, 3, "127.0.0.1:2"));
    assert!(why.contains("the cell is not founded yet"), "{why}");
    assert!(blank.try_acquire("x", TTL).blocking().is_err(), "nothing is granted");
}

/// The part of the node that plans has the first shard's leases alone.
#[test]
fn a_plan_waits_for_the_longest_lease_of_any_shard() {
    let data = Data::new("plan");
    let (listener, address) = listen();
    let node = start(data.config(1, &[(1, &address)]).new_cell(true), listener);
    block_on(node.ready()).expect("the cell is founded");
    let takes = || {
        let plan = change_members(&node, replace(1, 2, "127.0.0.1:1"), true);
        plan.expect("a plan, with its problems").takes
    };
    assert!(takes() < Duration::from_secs(40));
    let is_in_second = |name: &&str| ShardId::of(Name::new(name).expect("a name"), 2).index() == 1;
    let name = ["a", "b", "c", "d", "e"].into_iter().find(is_in_second).expect("one of them");
    let _lease = node.acquire(name, Duration::from_secs(40)).blocking().expect("granted");
    until("the first shard has heard", || takes() >= Duration::from_secs(40));
}
