//! A member of a cell whose peers send arbitrary messages about members: members, one with another
//! birth, one that was removed, and a proposer. A node believes members only, and nothing that
//! legal changes cannot lead to (C11).

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, Decider, DeciderConfig, DecisionNumber, Drift, Instant,
    Member, Members, MembershipEvent, MembershipMessage, NodeId, NodeView, Rules,
    StableConfiguration, Vote,
};
use paxoslease_wire::decode_membership;

use crate::shard::node;

const STEPS_MAX: usize = 256;
/// Ids and births. Node 1 is the one that the others send to.
const MEMBERS: [(u16, u64); 3] = [(1, 101), (2, 102), (4, 104)];
const REMOVED: (u16, u64) = (3, 103);
const SENDERS: [(u16, u64); 5] = [MEMBERS[1], MEMBERS[2], (2, 7), REMOVED, (900, 0)];

/// The fields of a configuration, relative to the one that the node has.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Fields {
    /// How many epochs later.
    ahead: u8,
    /// Whether it is the last epoch of all.
    is_last: bool,
    /// Bits select the members.
    old: u8,
    new: Option<u8>,
    era_ago: u8,
    floor: u8,
}

#[derive(Arbitrary, Clone, Debug)]
enum MembersStep {
    Config { from: u8, fields: Fields },
    Begin { from: u8, to: u8 },
    End { from: u8 },
    Prepare { from: u8, counter: u64 },
    Accept { from: u8, counter: u64, fields: Fields },
    Frame { from: u8, bytes: Vec<u8> },
    Pass { millis: u16 },
}

/// Members that a node believed and should not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FalseMembers {
    /// The node that told them.
    pub from: NodeId,
    /// Their epoch.
    pub epoch: u32,
}

/// Sends messages to a node with every rule in force.
///
/// # Panics
/// When it believes what it should not.
pub fn members(bytes: &[u8]) {
    assert_eq!(members_with_rules(Rules::ALL, bytes), None);
}

/// Like [`members`], but with these rules, and returns what was believed. For tests of the check.
#[must_use]
pub fn members_with_rules(rules: Rules, bytes: &[u8]) -> Option<FalseMembers> {
    let mut input = Unstructured::new(bytes);
    let mut config = DeciderConfig::new(node(1), Birth(101), Drift::NONE, 1);
    config.rules = rules;
    let record = StableConfiguration { configuration: first(), vote: Vote::default() };
    let mut now = Instant::ZERO;
    let mut decider = Decider::start(config, now, record);
    decider.shards_changed(now, decider.configuration().epoch(), None);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = MembersStep::arbitrary(&mut input) else { break };
        let known = decider.configuration().clone();
        if let MembersStep::Pass { millis } = step {
            now = now.after(Duration::from_millis(millis.into()));
            decider.handle_timeout(now, &NodeView::default());
            settle(&mut decider, now);
            continue;
        }
        let Some((from, message)) = message_of(step, &known) else { continue };
        let is_config = matches!(message, MembershipMessage::Config(_));
        decider.handle_message(now, from, message, &NodeView::default());
        settle(&mut decider, now);
        let adopted = decider.configuration();
        let is_sound = known.is_member(from.0, from.1) && known.may_lead_to(adopted);
        if is_config && *adopted != known && !is_sound {
            return Some(FalseMembers { from: from.0, epoch: adopted.epoch() });
        }
    }
    None
}

/// Node 3 was a member in the first epoch.
fn first() -> Configuration {
    let all: Vec<(u16, u64)> = [MEMBERS[0], MEMBERS[1], REMOVED].to_vec();
    let list = set(&all);
    [Change::Same(list.clone()), Change::Begin(set(&MEMBERS)), Change::End]
        .iter()
        .try_fold(Configuration::unfounded(&list), |from, change| from.after(change, Ballot::ZERO))
        .expect("legal")
}

fn set(nodes: &[(u16, u64)]) -> Members {
    let member = |(id, birth): &(u16, u64)| Member {
        node: node(*id),
        birth: Birth(*birth),
        peer: format!("node-{id}:7401").into(),
    };
    Members::new(nodes.iter().map(member).collect()).expect("valid")
}

/// Any of the members, the removed one and one that was never a member.
fn chosen(bits: u8) -> Members {
    let all = [MEMBERS[0], MEMBERS[1], MEMBERS[2], REMOVED, (900, 900)];
    let is_chosen = |(place, _): &(usize, &(u16, u64))| bits >> place & 1 == 1;
    let nodes: Vec<(u16, u64)> =
        all.iter().enumerate().filter(is_chosen).map(|(_, one)| *one).collect();
    set(if nodes.is_empty() { &all[4..] } else { &nodes })
}

fn configuration(known: &Configuration, fields: Fields) -> Option<Configuration> {
    let ahead = u32::from(fields.ahead);
    let epoch = if fields.is_last { u32::MAX } else { known.epoch() + ahead };
    let old = chosen(fields.old);
    let new = fields.new.map(chosen);
    let mut past = known.past().to_vec();
    let listed = old.iter().chain(new.iter().flat_map(|new| new.iter()));
    past.extend(listed.map(|member| (member.node, member.birth)));
    past.sort_unstable();
    past.dedup();
    let era = epoch.checked_sub(fields.era_ago.into())?;
    let floor = Ballot::above_counter(fields.floor.into());
    Configuration::new(epoch, (old, new), era, floor, past).ok()
}

fn message_of(
    step: MembersStep,
    known: &Configuration,
) -> Option<((NodeId, Birth), MembershipMessage)> {
    use MembershipMessage as M;
    let sender = |number: u8| {
        let (id, birth) = SENDERS[usize::from(number) % SENDERS.len()];
        (node(id), Birth(birth))
    };
    let epoch = known.epoch().checked_add(1)?;
    let number = |from: u8, counter: u64| {
        let (node, birth) = sender(from);
        DecisionNumber { counter, node, birth }
    };
    Some(match step {
        MembersStep::Config { from, fields } => {
            (sender(from), M::Config(configuration(known, fields)?))
        }
        MembersStep::Begin { from, to } => {
            let value = known.after(&Change::Begin(chosen(to)), known.floor()).ok()?;
            (sender(from), M::Config(value))
        }
        MembersStep::End { from } => {
            (sender(from), M::Config(known.after(&Change::End, known.floor()).ok()?))
        }
        MembersStep::Prepare { from, counter } => {
            (sender(from), M::ConfPrepare { epoch, n: number(from, counter) })
        }
        MembersStep::Accept { from, counter, fields } => {
            let value = configuration(known, fields)?;
            (sender(from), M::ConfAccept { epoch, n: number(from, counter), value })
        }
        MembersStep::Frame { from, bytes } => (sender(from), decode_membership(&bytes).ok()?),
        MembersStep::Pass { .. } => return None,
    })
}

/// Every write succeeds at once, and no message is answered.
fn settle(decider: &mut Decider, now: Instant) {
    while let Some(event) = decider.poll_event() {
        match event {
            MembershipEvent::Persist(_) => decider.record_written(now, &NodeView::default()),
            MembershipEvent::Adopt(adopted) => decider.shards_changed(now, adopted.epoch(), None),
            _ => {}
        }
    }
    while decider.poll_transmit().is_some() {}
}
