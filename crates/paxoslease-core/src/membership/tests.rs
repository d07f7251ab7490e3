//! Whole changes in small cells.

mod belief;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::time::Duration;

use crate::{
    Ballot, Birth, Change, ChangeError, Configuration, Decider, DeciderConfig, DecisionNumber,
    Drift, Instant, Member, Members, MembershipEvent, MembershipMessage, NodeId, NodeView, Rng,
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
    /// Whether no write ends.
    hangs: bool,
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
            let (disk, events) = (disk.clone(), vec![]);
            let (longest, is_up, hangs) = (None, true, false);
            let machine = Machine { decider, disk, longest, is_up, hangs, events };
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
                        MembershipEvent::Persist(_) if machine.hangs => {}
                        MembershipEvent::Persist(record) => {
                            machine.disk = record.clone();
                            machine.decider.record_written(self.now, &self.view);
                        }
                        MembershipEvent::Adopt(next) => {
                            machine.decider.shards_changed(self.now, next.epoch(), machine.longest);
                        }
                        MembershipEvent::Learnt { .. } => {}
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
fn registers_of_durable_leases_hold_up_the_end() {
    let mut cell = Cell::founded();
    cell.view.registers_left = 1;
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(30));
    assert_eq!(cell.epochs(), [2, 2, 2, 2, 0]);
    cell.view.registers_left = 0;
    cell.run(Duration::from_secs(2));
    assert_eq!(cell.epochs(), [3, 3, 3, 3, 0]);
}

/// C10: the coordinator has seen all of its own leases stored by the new set, and this voter has
/// not.
#[test]
fn a_voter_with_registers_left_refuses_the_end() {
    let mut cell = Cell::founded();
    cell.view.registers_left = 1;
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(30));
    let (now, view) = (cell.now, cell.view.clone());
    let coordinator = cell.node(1).decider.own();
    let n = DecisionNumber { counter: 1 << 20, node: coordinator.0, birth: coordinator.1 };
    let voter = &mut cell.node(2).decider;
    let value = voter.configuration().after(&Change::End, Ballot::above_counter(7));
    let value = value.expect("a joint epoch ends");
    let accept = MembershipMessage::ConfAccept { epoch: value.epoch(), n, value };
    voter.handle_message(now, coordinator, accept, &view);
    let sent: Vec<_> = core::iter::from_fn(|| voter.poll_transmit()).collect();
    let [(_, MembershipMessage::ConfReject { wait, .. })] = &sent[..] else { panic!("{sent:?}") };
    assert!(!wait.is_zero());
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
    let lost = |epoch| MembershipEvent::DiskLost { epoch };
    assert_eq!(cell.epochs()[2], 0, "it does not act in the place of the member");
    assert_eq!(cell.answers(3)[..1], [lost(1)]);
    cell.begin(1, 1, Change::Begin(members(&[1, 4]))).expect("possible");
    cell.run(Duration::from_secs(6));
    assert_eq!(cell.answers(1), [MembershipEvent::NoQuorum { token: Token(1) }]);
    cell.restart(2);
    cell.begin(1, 2, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(3));
    assert_eq!(cell.epochs(), [3, 3, 0, 3, 0]);
    assert!(cell.answers(3).contains(&lost(3)), "its id was a member, and is not any more");
}

/// U2: such a node may be meant for another cell, or lost the disk it founded this one with.
#[test]
fn a_node_that_was_not_told_to_found_stays_out() {
    for blank in [1, 3] {
        let mut cell = Cell::new();
        cell.node(blank).decider.config.founds = false;
        cell.run(Duration::from_secs(10));
        let has_voted = |machine: &Machine| machine.disk.vote != Vote::default();
        assert!(!cell.machines.values().any(has_voted), "the founding waits for it");
        if blank == 3 {
            let (birth, state) = cell.node(1).decider.heard(id(3)).expect("it answers Poll");
            assert_eq!((birth, state.voting), (Birth(103), false));
        }
        let begun = cell.begin(blank, 1, Change::Same(members(&[1, 2, 3])));
        assert_eq!(begun, Err(ChangeError::NotMember));
        // An administrator proposes the founding at another node.
        cell.begin(2, 2, Change::Same(members(&[1, 2, 3]))).expect("possible");
        cell.run(Duration::from_secs(10));
        assert!(!has_voted(cell.node(blank)));
        assert_eq!(cell.epochs(), [0; 5]);
        cell.restart(blank);
        cell.run(Duration::from_secs(2));
        assert_eq!(cell.epochs(), [1, 1, 1, 0, 0], "now it was told");
    }
}

impl Cell {
    /// A message that node 3, which is broken, sends to another one.
    fn forge(&mut self, to: u16, message: MembershipMessage) {
        self.forge_as((3, 103), to, message);
    }

    /// A message that a node with this birth sends to another one.
    fn forge_as(&mut self, (node, birth): (u16, u64), to: u16, message: MembershipMessage) {
        let now = self.now;
        let view = self.view.clone();
        let from = (id(node), Birth(birth));
        self.node(to).decider.handle_message(now, from, message, &view);
    }

    /// A node starts that no other one knows, with an empty disk and these contacts.
    fn start_blank(&mut self, node: u16, birth: u64, contacts: &[u16]) {
        let now = self.now;
        let configuration = Configuration::unfounded(&members(contacts));
        let disk = StableConfiguration { configuration, vote: Vote::default() };
        let machine = self.node(node);
        machine.decider = Self::decider(node, Birth(birth), now, &disk);
        machine.disk = disk;
    }
}

/// A number of node 3.
fn number(counter: u64) -> DecisionNumber {
    DecisionNumber { counter, node: id(3), birth: Birth(103) }
}

/// The counters of ballots are the same ones in all epochs, so they must not be used up.
#[test]
fn no_voter_moves_the_floor_beyond_the_bound_of_counters() {
    let mut cell = Cell::founded();
    cell.view.counter_bound = 1 << 40;
    let change = Change::Begin(members(&[1, 2, 4]));
    cell.drops = |message| matches!(message, MembershipMessage::ConfPromise { .. });
    cell.begin(1, 1, change.clone()).expect("possible");
    let n = cell.node(1).disk.vote.promised.expect("its own vote");
    let high = Ballot::above_counter(1 << 41);
    let value = cell.node(1).decider.configuration().after(&change, high).expect("legal");
    let accepted = Some((number(0), value.clone()));
    for (accepted, top) in [(None, 1 << 40), (accepted, 7)] {
        cell.forge(1, MembershipMessage::ConfPromise { epoch: 2, n, accepted, top });
        cell.settle();
        assert_eq!(cell.node(1).disk.vote.accepted, None, "the promise does not count");
    }
    let later = number(n.counter + 1);
    cell.forge(2, MembershipMessage::ConfAccept { epoch: 2, n: later, value: value.clone() });
    cell.forge(2, MembershipMessage::Config(value));
    cell.settle();
    assert_eq!(cell.node(2).disk.vote.accepted, None);
    assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
    cell.forge(1, MembershipMessage::ConfPromise { epoch: 2, n, accepted: None, top: 8 });
    cell.settle();
    assert_eq!(cell.epochs(), [2, 2, 2, 2, 0], "a sound promise counts");
    let floor = cell.node(1).decider.configuration().floor();
    assert_eq!(floor, Ballot::above_counter(8));
}

#[test]
fn no_voter_uses_up_the_numbers_of_an_epoch() {
    let mut cell = Cell::founded();
    let high = number(Ballot::COUNTER_LIMIT - 1);
    let prepare = |n| MembershipMessage::ConfPrepare { epoch: 2, n };
    for node in [1, 2] {
        cell.forge(node, prepare(high));
    }
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    assert_eq!(cell.answers(1), [MembershipEvent::Decided { token: Token(1), epoch: 2 }]);
    // In the next epoch, a Reject arrives before any answer.
    cell.drops = |message| matches!(message, MembershipMessage::ConfPromise { .. });
    cell.begin(1, 2, Change::Abort).expect("possible");
    let (promised, wait) = (Some(high), Duration::ZERO);
    cell.forge(1, MembershipMessage::ConfReject { epoch: 3, promised, wait });
    cell.drops = |_| false;
    cell.run(Duration::from_secs(1));
    assert_eq!(cell.answers(1), [MembershipEvent::Decided { token: Token(2), epoch: 3 }]);
}

#[test]
fn a_voter_refuses_an_attempt_once_and_no_other_node_does() {
    let mut cell = Cell::founded();
    cell.drops = |message| matches!(message, MembershipMessage::ConfPromise { .. });
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    let (now, view) = (cell.now, cell.view.clone());
    for (node, expected) in [(5, None), (3, Some(1 << 20))] {
        for attempt in 1..=9 {
            let from = (id(node), Birth(u64::from(node) + 100));
            let promised = Some(number(attempt << 40));
            let reject = MembershipMessage::ConfReject { epoch: 2, promised, wait: Duration::ZERO };
            cell.node(1).decider.handle_message(now, from, reject, &view);
        }
        let seen = cell.node(1).decider.promised_seen.map(|n| n.counter >> 20 << 20);
        assert_eq!(seen, expected, "node {node}");
    }
}

#[test]
fn a_coordinator_whose_disk_hangs_is_replaced() {
    let mut cell = Cell::founded();
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    assert!(cell.node(1).decider.leads());
    cell.node(1).hangs = true;
    cell.run(Duration::from_secs(12));
    assert_eq!(cell.epochs()[1..4], [3, 3, 3]);
    assert_eq!(*cell.node(2).decider.configuration().old(), members(&[1, 2, 4]));
}

/// Otherwise the voter with the high number and the one with the low number would never agree.
#[test]
fn a_coordinator_reaches_any_number_by_repeated_attempts() {
    let mut cell = Cell::founded();
    for steps in 1..=4 {
        cell.forge(2, MembershipMessage::ConfPrepare { epoch: 2, n: number(steps << 20) });
        cell.settle();
    }
    assert_eq!(cell.node(2).disk.vote.promised, Some(number(4 << 20)));
    cell.node(3).is_up = false;
    cell.begin(1, 1, Change::Begin(members(&[1, 2, 4]))).expect("possible");
    cell.run(Duration::from_secs(5));
    assert_eq!(cell.answers(1), [MembershipEvent::Decided { token: Token(1), epoch: 2 }]);
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
