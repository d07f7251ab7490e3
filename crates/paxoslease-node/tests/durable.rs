//! Durable leases of real nodes, with their files on a real disk.

mod cell;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use cell::{Data, change_members, config, listen, status, until};
use paxoslease_core::{Holder, Lasts, Name};
use paxoslease_holder::MembersChange;
use paxoslease_node::front::{Answer, LiveLease, NotKept, Request};
use paxoslease_node::{Config, Durability, Node, block_on};

/// The quarantine after a crash is short.
const MAX_LEASE: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_secs(20);

fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("a name")
}

fn acquire(node: &Node, text: &str, lasts: Option<Lasts>, wait: Duration) -> Answer {
    let lease = (name(text), Holder::new("me").expect("short")).into();
    let (ttl, permits, is_retried) = (MAX_LEASE, None, false);
    block_on(node.remote().ask(Request::Acquire { lease, ttl, wait, permits, is_retried, lasts }))
}

/// Takes an endless lease. Returns its fence.
fn keep(node: &Node, text: &str) -> u64 {
    match acquire(node, text, Some(Lasts::FOREVER), WAIT) {
        Answer::Granted { tenure, .. } => tenure.fence(),
        other => panic!("{text}: {other:?}"),
    }
}

fn release(node: &Node, text: &str, fence: u64) -> Answer {
    let lease = name(text).into();
    block_on(node.remote().ask(Request::Release { lease, fence, is_durable: true }))
}

fn holder_of(node: &Node, text: &str) -> Option<Box<LiveLease>> {
    match block_on(node.remote().ask(Request::Inspect { lease: name(text).into() })) {
        Answer::Inspected(seen) => seen,
        other => panic!("{text}: {other:?}"),
    }
}

const WAS_HELD: Answer = Answer::Released { held: Some(true), confirmed: true };

/// A cell of members with data folders, and nodes that join it.
struct Members {
    data: Data,
    addresses: Vec<String>,
    founders: usize,
}

impl Members {
    fn found(test: &str, founders: usize, spares: usize) -> (Self, Vec<Node>) {
        let (mut listeners, addresses): (Vec<_>, Vec<_>) =
            (0..founders + spares).map(|_| listen()).unzip();
        listeners.truncate(founders);
        let members = Self { data: Data::new(test), addresses, founders };
        let start = |(id, listener): (u16, TcpListener)| {
            let config = members.config(id).new_cell(true);
            block_on(Node::start_on(config, listener)).expect("starts")
        };
        let nodes: Vec<Node> = (1..).zip(listeners).map(start).collect();
        ready(&nodes);
        (members, nodes)
    }

    fn config(&self, id: u16) -> Config {
        let addresses = self.addresses.iter().map(String::as_str);
        let list: Vec<(u16, &str)> = (1..).zip(addresses).take(self.founders).collect();
        let mut config = self.data.config(id, &list).max_lease(MAX_LEASE);
        config.listen.peers = Some(self.addresses[usize::from(id) - 1].clone());
        config
    }

    fn start(&self, id: u16) -> Node {
        Node::start_blocking(self.config(id)).expect("starts")
    }
}

fn ready(nodes: &[Node]) {
    nodes.iter().for_each(|node| block_on(node.ready()).expect("it reaches a majority"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a file");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("it is copied");
        }
    }
}

/// What the files of running nodes have at one moment is what `kill -9` of all of them would leave.
#[test]
fn endless_leases_survive_the_kill_of_all_members_at_once() {
    let (members, nodes) = Members::found("kill", 3, 0);
    let names: Vec<String> = (0..40).map(|number| format!("jobs/{number}")).collect();
    let fences: Vec<u64> =
        names.iter().zip((0..3).cycle()).map(|(text, at)| keep(&nodes[at], text)).collect();
    let freed = keep(&nodes[0], "freed");
    assert_eq!(release(&nodes[1], "freed", freed), WAS_HELD);
    // A member that missed a Store makes the others raise the fence (K7).
    until("every member has what all have", || {
        nodes.iter().all(|node| status(node).durable_unsettled == 0)
    });
    let image = members.data.folder().with_extension("image");
    copy(members.data.folder(), &image);
    nodes.iter().for_each(Node::shutdown_blocking);
    drop(nodes);
    fs::remove_dir_all(members.data.folder()).expect("they stopped");
    fs::rename(&image, members.data.folder()).expect("the same disk");

    let nodes: Vec<Node> = (1..=3).map(|id| members.start(id)).collect();
    ready(&nodes);
    for ((text, fence), at) in names.iter().zip(fences).zip((0..3).cycle()) {
        let Answer::Held(by) = acquire(&nodes[at], text, None, Duration::ZERO) else {
            panic!("{text} has another holder")
        };
        assert_eq!((by.tenure.fence(), by.label.holder()), (fence, Holder::new("me").unwrap()));
        let seen = holder_of(&nodes[at], text).expect("it is held");
        assert_eq!((seen.tenure.fence(), seen.lasts()), (fence, Lasts::FOREVER));
        assert_eq!(release(&nodes[(at + 1) % 3], text, fence), WAS_HELD);
        let Answer::Granted { tenure, .. } = acquire(&nodes[at], text, None, WAIT) else {
            panic!("{text} is not free")
        };
        assert!(tenure.fence() > fence);
    }
    assert!(keep(&nodes[2], "freed") > freed);
}

#[test]
fn a_clean_stop_of_all_members_keeps_durable_leases() {
    let (members, nodes) = Members::found("stop", 3, 0);
    let fence = keep(&nodes[0], "kept");
    until("every member has it", || nodes.iter().all(|node| status(node).durable == 1));
    nodes.iter().for_each(Node::shutdown_blocking);
    drop(nodes);
    let nodes: Vec<Node> = (1..=3).map(|id| members.start(id)).collect();
    ready(&nodes);
    assert_eq!(holder_of(&nodes[2], "kept").expect("it is held").tenure.fence(), fence);
    assert_eq!(release(&nodes[1], "kept", fence), WAS_HELD);
}

/// It blocked the name as soon as another member was down.
#[test]
fn a_member_that_was_away_during_a_release_blocks_nothing() {
    let (members, mut nodes) = Members::found("away", 3, 0);
    let fence = keep(&nodes[0], "kept");
    until("every member has it", || nodes.iter().all(|node| status(node).durable == 1));
    let third = nodes.pop().expect("three");
    third.shutdown_blocking();
    drop(third);
    assert_eq!(release(&nodes[0], "kept", fence), WAS_HELD);
    let third = members.start(3);
    block_on(third.ready()).expect("it reaches a majority");
    nodes[0].shutdown_blocking();
    assert!(keep(&third, "kept") > fence);
}

#[test]
fn a_cell_without_disks_says_what_a_durable_lease_needs() {
    let cell = cell::start(3, |config| config);
    let max_lease = Duration::from_secs(60);
    let refused = acquire(&cell.nodes[0], "kept", Some(Lasts::FOREVER), Duration::ZERO);
    assert_eq!(refused, Answer::NotKept(NotKept::NoDisk { max_lease }));
    let Answer::NotKept(why) = refused else { unreachable!("compared above") };
    assert_eq!(
        why.to_string(),
        "this cell keeps nothing on disk, so a lease longer than max_lease (60s) would not survive \
         a crash: give every member a data_dir, or set durable_leases = \"volatile\""
    );
    let ordinary = acquire(&cell.nodes[1], "kept", None, WAIT);
    assert!(matches!(ordinary, Answer::Granted { .. }), "nothing was left: {ordinary:?}");

    let cell = cell::start(1, |config| config.durable_leases(Durability::Refused));
    let refused = acquire(&cell.nodes[0], "kept", Some(Lasts::FOREVER), Duration::ZERO);
    assert_eq!(refused, Answer::NotKept(NotKept::SwitchedOff { max_lease }));
}

#[test]
fn a_cell_without_disks_can_keep_durable_leases_in_memory() {
    let volatile = |config: Config| config.durable_leases(Durability::Volatile);
    let mut cell = cell::start(3, volatile);
    let fence = keep(&cell.nodes[0], "kept");
    until("every member has it", || cell.nodes.iter().all(|node| status(node).durable == 1));
    cell.nodes.remove(0).shutdown_blocking();
    assert_eq!(holder_of(&cell.nodes[0], "kept").expect("it is held").tenure.fence(), fence);

    // A node that would lose it does not belong to the cell.
    let other = block_on(Node::start(config(&cell.addresses, 1))).expect("starts");
    until("it is told why", || {
        let problems = status(&other).peers.into_iter().filter_map(|peer| peer.problem);
        problems.into_iter().any(|why| why.contains("durable_leases"))
    });
}

#[test]
fn a_lease_beyond_the_limit_is_refused() {
    let volatile = |mut config: Config| {
        config.limits.durable = 1;
        config.durable_leases(Durability::Volatile)
    };
    let cell = cell::start(3, volatile);
    keep(&cell.nodes[0], "kept");
    let refused = acquire(&cell.nodes[0], "one more", Some(Lasts::FOREVER), Duration::ZERO);
    assert_eq!(refused, Answer::NotKept(NotKept::NoRoom));
    let ordinary = acquire(&cell.nodes[0], "one more", None, WAIT);
    assert!(matches!(ordinary, Answer::Granted { .. }), "{ordinary:?}");
}

#[test]
fn a_lease_can_be_kept_prolonged_and_shortened_through_any_node() {
    let (_members, nodes) = Members::found("keep", 3, 0);
    let Answer::Granted { tenure, .. } = acquire(&nodes[0], "x", None, WAIT) else {
        panic!("it is free")
    };
    let lease = || (name("x"), Holder::new("me").expect("short")).into();
    let fence = tenure.fence();
    let hour = Lasts::from_millis(3_600_000).expect("not zero");
    let ask = |node: &Node, request| block_on(node.remote().ask(request));
    let kept = ask(&nodes[1], Request::Keep { lease: lease(), fence, lasts: hour });
    assert!(matches!(kept, Answer::Kept { fence, lasts, .. } if fence == tenure && lasts == hour));
    // A plain renewal does not shorten it.
    let renewed = ask(&nodes[2], Request::Renew { lease: lease(), fence, ttl: MAX_LEASE });
    let Answer::Kept { lasts, .. } = renewed else { panic!("{renewed:?}") };
    assert!(lasts > Lasts::from_millis(3_000_000).expect("not zero"));
    let soon = Lasts::from_millis(20).expect("not zero");
    let kept = ask(&nodes[0], Request::Keep { lease: lease(), fence, lasts: soon });
    // On a busy machine it is over before a majority has it.
    let is_set = matches!(kept, Answer::Kept { lasts, .. } if lasts == soon);
    assert!(is_set || kept == Answer::NoQuorum, "{kept:?}");
    assert!(keep(&nodes[1], "x") > fence);
    let late = ask(&nodes[2], Request::Keep { lease: lease(), fence, lasts: hour });
    assert_eq!(late, Answer::NotHeld);
}

#[test]
fn durable_leases_move_to_the_member_that_replaces_a_dead_one() {
    let (members, mut nodes) = Members::found("replace", 3, 1);
    let names: Vec<String> = (0..20).map(|number| format!("jobs/{number}")).collect();
    let fences: Vec<u64> = names.iter().map(|text| keep(&nodes[0], text)).collect();
    nodes.pop().expect("three").shutdown_blocking();
    let newcomer = members.start(4);
    until("the newcomer has heard of the cell", || status(&newcomer).epoch == 1);
    let add = vec![(4, members.addresses[3].clone())];
    let change = MembersChange::Edit { remove: vec![3], add };
    change_members(&nodes[0], change, false).expect("a majority is up");
    nodes.push(newcomer);
    for node in &nodes {
        until("the change has ended", || {
            let status = status(node);
            status.members == [1, 2, 4] && status.change.is_none()
        });
    }
    // The newcomer and one more are a majority now.
    nodes.remove(0).shutdown_blocking();
    for (text, fence) in names.iter().zip(fences) {
        assert_eq!(holder_of(&nodes[1], text).expect("it is held").tenure.fence(), fence);
        assert_eq!(release(&nodes[1], text, fence), WAS_HELD);
    }
}
