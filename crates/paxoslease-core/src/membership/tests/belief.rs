//! Which configurations a node believes, and of whom (C11).

use super::*;
use crate::{ConfigRefusal, EPOCHS_MISSED_MAX};

#[test]
fn the_members_of_another_cell_are_not_adopted() {
    let mut cell = Cell::founded();
    let list = members(&[5]);
    let other = Configuration::unfounded(&list).after(&Change::Same(list), Ballot::ZERO);
    let begin = Change::Begin(members(&[4, 5]));
    let other = other.expect("legal").after(&begin, Ballot::ZERO).expect("legal");
    cell.forge(2, MembershipMessage::Config(other));
    cell.settle();
    assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
    assert_eq!(cell.answers(2), [refused(3, 2, ConfigRefusal::OtherCell)]);
}

fn refused(from: u16, epoch: u32, why: ConfigRefusal) -> MembershipEvent {
    MembershipEvent::ConfigRefused { from: id(from), epoch, why }
}

/// The configuration after these changes.
fn after(configuration: &Configuration, changes: &[Change]) -> Configuration {
    let next = |from: Configuration, change: &Change| from.after(change, Ballot::ZERO);
    changes.iter().try_fold(configuration.clone(), next).expect("legal")
}

/// C11: one Config would give the cell away for good.
#[test]
fn a_config_is_believed_of_known_members_only() {
    let mut cell = Cell::founded();
    cell.begin(1, 1, Change::Begin(members(&[1, 2]))).expect("possible");
    cell.run(Duration::from_secs(3));
    assert_eq!(cell.epochs(), [3, 3, 3, 0, 0], "node 3 is removed");
    cell.answers(1);
    let known = cell.node(1).decider.configuration().clone();
    let next = after(&known, &[Change::Begin(members(&[5]))]);
    let later = after(&next, &[Change::End]);
    let proposer = (5, 0);
    let removed = (3, 103);
    let reborn = (2, 7);
    for from in [proposer, removed, reborn] {
        for forged in [&next, &later] {
            cell.forge_as(from, 1, MembershipMessage::Config(forged.clone()));
            let why = refused(from.0, forged.epoch(), ConfigRefusal::NotMember);
            cell.settle();
            assert_eq!(cell.answers(1), [why]);
        }
    }
    assert_eq!(cell.epochs()[..3], [3; 3]);
    assert_eq!(cell.node(1).disk.configuration, known);
    cell.forge_as((2, 102), 1, MembershipMessage::Config(next));
    cell.settle();
    assert_eq!(cell.epochs()[0], 4, "a member is believed");
}

/// C11: also a member is believed only as far as legal changes lead.
#[test]
fn a_config_that_no_legal_change_leads_to_is_refused() {
    let mut cell = Cell::founded();
    let known = cell.node(1).decider.configuration().clone();
    let forged = |epoch, old: &[u16], era, past: &[(u16, u64)]| {
        let past = past.iter().map(|(node, birth)| (id(*node), Birth(*birth))).collect();
        let sets = (members(old), None);
        Configuration::new(epoch, sets, era, known.floor(), past).expect("consistent")
    };
    let past = [(1, 101), (2, 102), (3, 103)];
    let reborn = [(1, 7), (2, 102), (3, 103)];
    use ConfigRefusal::{NotSuccessor, OtherCell};
    let last = u32::MAX;
    for (forged, why) in [
        (forged(2, &[3], 0, &past), NotSuccessor),
        (forged(2, &[2, 3], 1, &past), NotSuccessor),
        (forged(9, &[3], 0, &past), NotSuccessor),
        (forged(9, &[3], 1, &past), NotSuccessor),
        (forged(9, &[3], 9, &past), NotSuccessor),
        (forged(last, &[1, 2, 3], 0, &past), NotSuccessor),
        (forged(EPOCHS_MISSED_MAX + 2, &[3], 8, &past), NotSuccessor),
        // It would make node 1 say that it lost its disk.
        (forged(2, &[2, 3], 0, &reborn), OtherCell),
    ] {
        let epoch = forged.epoch();
        cell.forge(1, MembershipMessage::Config(forged));
        cell.settle();
        assert_eq!(cell.answers(1), [refused(3, epoch, why)]);
    }
    assert_eq!(cell.epochs(), [1, 1, 1, 0, 0]);
    let latest = forged(EPOCHS_MISSED_MAX + 1, &[3], 8, &past);
    cell.forge(1, MembershipMessage::Config(latest));
    cell.settle();
    assert_eq!(cell.epochs()[0], EPOCHS_MISSED_MAX + 1, "a node may have missed that many");
}

/// C11: what a node that was away, or is new, has to compare.
#[test]
fn a_chain_of_legal_changes_leads_to_every_later_configuration() {
    let zero = Configuration::unfounded(&members(&[1, 2, 3]));
    for seed in 0..200 {
        let mut rng = Rng::seeded(seed);
        let mut chain = vec![after(&zero, &[Change::Same(members(&[1, 2, 3]))])];
        for counter in 0..12 {
            let last = chain.last().expect("one at least");
            let bits = rng.bits();
            let set: Vec<u16> = (1..=5).filter(|node| bits >> node & 1 == 1).collect();
            let mut moved = last.old().to_vec();
            moved[0].peer = format!("10.0.1.1:{counter}").into();
            let moved = Members::new(moved).expect("valid");
            let change = match (last.is_joint(), bits & 0x3000) {
                (true, 0) => Change::Abort,
                (true, _) => Change::End,
                (false, 0) => Change::Same(moved),
                (false, _) if set.is_empty() => continue,
                (false, _) => {
                    let stays =
                        |member: Member| last.old().find(member.node).cloned().unwrap_or(member);
                    let to = members(&set).iter().cloned().map(stays).collect();
                    Change::Begin(Members::new(to).expect("valid"))
                }
            };
            let floor = Ballot::above_counter(rng.bits() % 100);
            chain.extend(last.after(&change, floor));
        }
        for (place, earlier) in chain.iter().enumerate() {
            let later = &chain[place + 1..];
            assert!(later.iter().all(|later| earlier.may_lead_to(later)), "seed {seed}");
            assert!(later.iter().all(|later| !later.may_lead_to(earlier)), "seed {seed}");
        }
        assert!(chain.iter().all(|one| zero.may_lead_to(one)), "a new node takes any");
    }
}

#[test]
fn a_node_that_was_away_catches_up_on_many_changes_at_once() {
    let mut cell = Cell::founded();
    cell.node(3).is_up = false;
    for (token, to) in [&[1, 3, 4][..], &[3, 4, 5], &[1, 4, 5]].into_iter().enumerate() {
        let coordinator = if token == 2 { 4 } else { 1 };
        let begin = Change::Begin(members(to));
        cell.begin(coordinator, token as u64, begin).expect("possible");
        cell.run(Duration::from_secs(4));
    }
    assert_eq!(cell.epochs(), [7, 3, 1, 7, 7]);
    cell.restart(3);
    cell.node(3).decider.poll(None);
    cell.settle();
    assert_eq!(cell.epochs()[2], 7, "node 1 was a member all the time");
}

/// The members that a node knows may all be gone when it comes back.
#[test]
fn a_node_whose_members_are_gone_believes_its_list() {
    let mut cell = Cell::founded();
    cell.node(3).is_up = false;
    cell.begin(1, 1, Change::Begin(members(&[3, 4, 5]))).expect("possible");
    cell.run(Duration::from_secs(4));
    assert_eq!(cell.epochs(), [3, 3, 1, 3, 3]);
    for gone in [1, 2] {
        cell.node(gone).is_up = false;
    }
    for contacts in [vec![], vec![id(1), id(2)], vec![id(4)]] {
        cell.restart(3);
        cell.node(3).decider.config.contacts = contacts.clone();
        cell.node(3).decider.heard_epoch(id(4), 3);
        cell.settle();
        let is_told = contacts.contains(&id(4));
        let expected = if is_told { vec![] } else { vec![refused(4, 3, ConfigRefusal::NotMember)] };
        assert_eq!(cell.answers(3), expected, "contacts {contacts:?}");
        assert_eq!(cell.epochs()[2], if is_told { 3 } else { 1 });
    }
}

#[test]
fn a_new_node_believes_the_nodes_in_its_list_and_tells_nobody() {
    let mut cell = Cell::founded();
    cell.start_blank(4, 104, &[2]);
    let known = cell.node(1).decider.configuration().clone();
    cell.forge_as((1, 101), 4, MembershipMessage::Config(known.clone()));
    cell.settle();
    assert_eq!(cell.answers(4), [refused(1, 1, ConfigRefusal::NotMember)]);
    cell.node(4).decider.heard_epoch(id(2), 1);
    cell.settle();
    assert_eq!(*cell.node(4).decider.configuration(), known);
    // No node would believe it: it never was a member.
    cell.start_blank(5, 105, &[4]);
    cell.node(5).decider.heard_epoch(id(4), 1);
    cell.settle();
    assert_eq!((cell.epochs()[4], cell.answers(5)), (0, vec![]));
}
