//! Whole changes in small cells.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::time::Duration;

use crate::{
    Ballot, Birth, Change, ChangeError, Configuration, Decider, DeciderConfig, Drift, Instant,
    Member, Members, MembershipEvent, MembershipMessage, NodeId, NodeView, Rng,
    StableConfiguration, Token, Ttl, Vote,
};

pub(super) fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("in bounds")
}

/// Members whose birth is their id plus 100.
pub(super) fn members(ids: &[u16]) -> Members {
    let member = |node: &u16| Member {
        node: id(*node),
        birth: Birth(u64::from(*node) + 100),
        peer: format!("10.0.0.{node}:7401").into(),
    };
    Members::new(ids.iter().map(member).collect()).expect("valid")
}

struct Machine {
    decider: Decider,
    disk: StableConfiguration,
    /// The longest lease that its shards report.
    longest: Option<Ttl>,
    is_up: bool,
    events: Vec<MembershipEvent>,
}

/// Nodes with disks that write at once, and a network that delivers at once.
struct Cell {
    now: Instant,
    machines: BTreeMap<NodeId, Machine>,
    view: NodeView,
    /// Messages that the network drops.
    drops: fn(&MembershipMessage) -> bool,
    /// Draws the messages that the network loses: three of ten, if it is set.
    loss: Option<Rng>,
}

impl Cell {
    /// Nodes 1 to 5 that list nodes 1 to 3.
    fn new() -> Self {
        let mut cell = Self {
            now: Instant::ZERO,
            machines: BTreeMap::new(),
            view: NodeView { top: 7, ..NodeView::default() },
            drops: |_| false,
            loss: None,
        };
        let configuration = Configuration::unfounded(&members(&[1, 2, 3]));
        let disk = StableConfiguration { configuration, vote: Vote::default() };
        for node in 1..=5 {
            let decider = Self::decider(node, Birth(u64::from(node) + 100), cell.now, &disk);
            let machine =
                Machine { decider, disk: disk.clone(), longest: None, is_up: true, events: vec![] };
            cell.machines.insert(id(node), machine);
        }
        cell
    }

    /// A cell whose nodes 1 to 3 have founded it.
    fn founded() -> Self {
        let mut cell = Self::new();
        cell.run(Duration::from_secs(1));
        assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
        cell
    }

    fn decider(node: u16, birth: Birth, now: Instant, disk: &StableConfiguration) -> Decider {
        let drift = Drift::new(0, Duration::from_millis(5)).expect("in bounds");
        let config = DeciderConfig::new(id(node), birth, drift, u64::from(node));
        let mut decider = Decider::start(config, now, disk.clone());
        decider.shards_changed(now, disk.configuration.epoch(), None);
        decider
    }

    fn node(&mut self, node: u16) -> &mut Machine {
        self.machines.get_mut(&id(node)).expect("there are five")
    }

    fn begin(&mut self, node: u16, token: u64, change: Change) -> Result<(), ChangeError> {
        let (now, view) = (self.now, self.view.clone());
        let begun = self.node(node).decider.begin(now, Token(token), change, &view);
        self.settle();
        begun
    }

    fn restart(&mut self, node: u16) {
        let now = self.now;
        let machine = self.node(node);
        machine.is_up = true;
        let (_, birth) = machine.decider.own();
        machine.decider = Self::decider(node, birth, now, &machine.disk);
    }

    /// Delivers and writes until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut sent = Vec::new();
            let mut has_moved = false;
            for machine in self.machines.values_mut().filter(|machine| machine.is_up) {
                while let Some(event) = machine.decider.poll_event() {
                    has_moved = true;
                    match &event {
                        MembershipEvent::Persist(record) => {
                            machine.disk = record.clone();
                            machine.decider.record_written(self.now, &self.view);
                        }
                        MembershipEvent::Adopt(next) => {
                            machine.decider.shards_changed(self.now, next.epoch(), machine.longest);
                        }
                        _ => machine.events.push(event),
                    }
                }
                while let Some((to, message)) = machine.decider.poll_transmit() {
                    let is_lost = self.loss.as_mut().is_some_and(|rng| rng.bits() % 10 < 3);
                    if !is_lost && !(self.drops)(&message) {
                        sent.push((machine.decider.own(), to, message));
                    }
                }
            }
            if sent.is_empty() && !has_moved {
                return;
            }
            for (from, to, message) in sent {
                if let Some(machine) = self.machines.get_mut(&to).filter(|machine| machine.is_up) {
                    machine.decider.handle_message(self.now, from, message, &self.view);
                }
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let until = self.now.after(span);
        self.settle();
        let next = |machine: &Machine| machine.decider.poll_timeout().filter(|_| machine.is_up);
        while let Some(at) = self.machines.values().filter_map(next).min().filter(|at| *at <= until)
        {
            self.now = self.now.max(at);
            for machine in self.machines.values_mut().filter(|machine| machine.is_up) {
                if machine.decider.poll_timeout().is_some_and(|at| at <= self.now) {
                    machine.decider.handle_timeout(self.now, &self.view);
                }
            }
            self.settle();
        }
        self.now = until;
    }

    fn epochs(&self) -> Vec<u32> {
        self.machines.values().map(|machine| machine.decider.configuration().epoch()).collect()
    }

    fn answers(&mut self, node: u16) -> Vec<MembershipEvent> {
        core::mem::take(&mut self.node(node).events)
    }
}

#[test]
fn the_cell_is_founded_once_all_members_are_up() {
    let mut cell = Cell::new();
    cell.node(3).is_up = false;
    cell.run(Duration::from_secs(10));
    assert_eq!(cell.epochs(), [0; 5]);
    cell.restart(3);
    cell.run(Duration::from_secs(2));
    assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
    let founded = cell.node(2).decider.configuration().clone();
    assert_eq!(*founded.old(), members(&[1, 2, 3]));
    assert_eq!(founded.floor(), Ballot::above_counter(7), "above what the voters had promised");
}

#[test]
fn a_cell_grows_from_three_to_five_and_shrinks_again() {
    let mut cell = Cell::founded();
    let five = members(&[1, 2, 3, 4, 5]);
    cell.node(3).longest = Ttl::from_millis(4000);
    cell.begin(2, 1, Change::Begin(five.clone())).expect("possible");
    assert_eq!(cell.epochs(), [2; 5], "newcomers learn it from the coordinator");
    assert_eq!(cell.answers(2), [MembershipEvent::Decided { token: Token(1), epoch: 2 }]);
    cell.run(Duration::from_millis(3900));
    assert_eq!(cell.epochs(), [2; 5], "the longest lease is still in use");
    cell.run(Duration::from_millis(1200));
    assert_eq!(cell.epochs(), [3; 5]);
    let grown = cell.node(5).decider.configuration().clone();
    assert_eq!((grown.old(), grown.era(), grown.is_joint()), (&five, 2, false));
    cell.begin(5, 2, Change::Begin(members(&[3, 4, 5]))).expect("possible");
    cell.run(Duration::from_secs(6));
    assert_eq!(cell.epochs(), [5; 5], "the removed nodes know, too");
    let refused = cell.begin(1, 3, Change::Begin(five));
    assert_eq!(refused, Err(ChangeError::NotMember));
    cell.run(Duration::from_secs(60));
    assert_eq!(cell.epochs(), [5; 5]);
}

#[test]
fn another_member_ends_the_change_of_a_dead_coordinator() {
    type Drops = fn(&MembershipMessage) -> bool;
    use MembershipMessage as M;
    // The coordinator dies when it has sent, or before it receives, these messages.
    let phases: [(Drops, u32); 4] = [
        (|message| matches!(message, M::ConfPromise { .. }), 1),
        (|message| matches!(message, M::ConfAccept { .. }), 1),
        (|message| matches!(message, M::ConfAccepted { .. } | M::Config(_)), 1),
        (|message| matches!(message, M::Poll { .. }), 3),
    ];
    for (drops, epoch) in phases {
        let mut cell = Cell::founded();
        cell.drops = drops;
        cell.begin(1, 1, Change::Begin(members(&[2, 3, 4]))).expect("possible");
        cell.node(1).is_up = false;
        cell.drops = |_| false;
        cell.run(Duration::from_secs(8));
        assert_eq!(cell.epochs()[1..3], [epoch; 2]);
        // The next administrator finds what was accepted, or begins anew.
        let begun = cell.begin(2, 2, Change::Begin(members(&[2, 3, 5])));
        assert_eq!(begun, Ok(()));
        cell.run(Duration::from_secs(8));
        assert_eq!(cell.epochs()[1..3], [epoch + 2; 2]);
        cell.restart(1);
        cell.run(Duration::from_secs(1));
        cell.node(1).decider.poll(None);
        cell.settle();
        assert_eq!(cell.epochs()[0], epoch + 2, "the old coordinator learns it");
    }
}

#[test]
fn a_change_whose_new_members_are_down_is_aborted() {
    let mut cell = Cell::founded();
    cell.node(4).is_up = false;
    cell.node(5).is_up = false;
    cell.begin(1, 1, Change::Begin(members(&[1, 4, 5]))).expect("possible");
    cell.run(Duration::from_secs(4));
    assert_eq!(cell.epochs(), [3, 3, 3, 0, 0]);
    let aborted = cell.node(1).decider.configuration().clone();
    assert_eq!((aborted.old(), aborted.era()), (&members(&[1, 2, 3]), 0));
}

#[test]
fn an_administrator_aborts_without_a_wait() {
    let mut cell = Cell::founded();
    cell.node(2).longest = Ttl::from_millis(60_000);
    cell.begin(1, 1, Change::Begin(members(&[4]))).expect("possible");
    assert_eq!(cell.begin(2, 2, Change::Begin(members(&[5]))), Err(ChangeError::ChangeUnderWay));
    cell.begin(2, 3, Change::Abort).expect("possible");
    assert_eq!(cell.answers(2), [MembershipEvent::Decided { token: Token(3), epoch: 3 }]);
    assert_eq!(cell.epochs(), [3, 3, 3, 3, 0]);
    assert_eq!(cell.begin(2, 4, Change::Abort), Err(ChangeError::NoChangeUnderWay));
}

#[test]
fn one_of_two_administrators_is_superseded() {
    let mut cell = Cell::founded();
    let (now, view) = (cell.now, cell.view.clone());
    let mut begin = |node: u16, change| {
        cell.node(node).decider.begin(now, Token(node.into()), change, &view).expect("possible");
    };
    begin(1, Change::Begin(members(&[1, 2, 4])));
    begin(3, Change::Begin(members(&[1, 2, 5])));
    cell.run(Duration::from_secs(1));
    let mut answers = [cell.answers(1), cell.answers(3)].concat();
    answers.sort_by_key(|answer| !matches!(answer, MembershipEvent::Decided { .. }));
    assert!(
        matches!(
            answers[..],
            [
                MembershipEvent::Decided { epoch: 2, .. },
                MembershipEvent::Superseded { epoch: 2, .. }
            ]
        ),
        "{answers:?}"
    );
}

#[test]
fn without_a_majority_of_the_old_set_there_is_no_quorum() {
    let mut cell = Cell::founded();
    cell.node(2).is_up = false;
    cell.node(3).is_up = false;
    cell.begin(1, 1, Change::Begin(members(&[1, 4, 5]))).expect("possible");
    assert_eq!(cell.begin(1, 2, Change::Begin(members(&[4]))), Err(ChangeError::ChangeUnderWay));
    cell.run(Duration::from_secs(6));
    assert_eq!(cell.answers(1), [MembershipEvent::NoQuorum { token: Token(1) }]);
    assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
}

#[test]
fn standing_leases_hold_up_the_end() {
    let mut cell = Cell::founded();
    cell.view.standing_leases_left = 1;
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(30));
    assert_eq!(cell.epochs(), [2, 2, 2, 2, 0]);
    cell.view.standing_leases_left = 0;
    cell.run(Duration::from_secs(2));
    assert_eq!(cell.epochs(), [3, 3, 3, 3, 0]);
}

#[test]
fn a_member_that_lost_its_disk_does_not_vote() {
    let mut cell = Cell::founded();
    let now = cell.now;
    let configuration = Configuration::unfounded(&members(&[1, 2, 3]));
    let blank = StableConfiguration { configuration, vote: Vote::default() };
    let machine = cell.node(3);
    machine.decider = Cell::decider(3, Birth(7), now, &blank);
    machine.disk = blank;
    cell.node(2).is_up = false;
    cell.run(Duration::from_secs(2));
    assert_eq!(cell.epochs()[2], 1, "it learns the configuration that does not list it");
    cell.begin(1, 1, Change::Begin(members(&[1, 4]))).expect("possible");
    cell.run(Duration::from_secs(6));
    assert_eq!(cell.answers(1), [MembershipEvent::NoQuorum { token: Token(1) }]);
    cell.restart(2);
    cell.begin(1, 2, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(3));
    assert_eq!(cell.epochs(), [3, 3, 3, 3, 0]);
}

#[test]
fn every_change_ends_after_crashes_and_lost_messages() {
    let (mut ended, mut aborted) = (0, 0);
    for seed in 0..100 {
        let mut cell = Cell::founded();
        let mut rng = Rng::seeded(seed);
        cell.loss = Some(Rng::seeded(!seed));
        for token in 0..20 {
            let node = (rng.bits() % 3 + 1) as u16;
            let to = [&[1, 2, 4][..], &[1, 2, 3, 4, 5], &[3]][(rng.bits() % 3) as usize];
            // An administrator may well be refused here.
            let _ = cell.begin(node, token, Change::Begin(members(to)));
            let failing = (rng.bits() % 5 + 1) as u16;
            cell.node(failing).is_up = false;
            cell.run(rng.below(Duration::from_secs(5)));
            cell.restart(failing);
        }
        cell.loss = None;
        cell.run(Duration::from_secs(20));
        let last = cell.machines.values().map(|machine| machine.decider.configuration());
        let last = last.max_by_key(|configuration| configuration.epoch()).expect("five").clone();
        assert!(!last.is_joint(), "seed {seed}: {last:?}");
        let has_adopted =
            |member: &&Member| *cell.machines[&member.node].decider.configuration() == last;
        assert!(last.old().majority(has_adopted), "seed {seed}");
        // The others learn it from the frames of leases.
        for machine in cell.machines.values_mut() {
            machine.decider.poll(None);
        }
        cell.settle();
        let mut members = last.old().iter().map(|member| &cell.machines[&member.node].decider);
        assert!(members.all(|decider| *decider.configuration() == last), "seed {seed}");
        let is_end = last.era() + 1 == last.epoch();
        (ended, aborted) = (ended + u32::from(is_end), aborted + u32::from(!is_end));
    }
    assert!(ended > 10 && aborted > 2, "{ended} ended, {aborted} aborted");
}
