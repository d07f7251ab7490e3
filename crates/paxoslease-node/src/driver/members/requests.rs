//! Requests of administrators to change the members: what a change would lead to, whether the nodes
//! are ready for it (C7), and its way to a decision.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_core::{
    Ballot, Birth, Change, ChangeError, Decider, Instant, Member, Members, NodeId, Token,
};
use paxoslease_holder::{MembersChange, MembersError, MembersPlan, MembersRequest};

use super::super::Driver;
use crate::config::PeerAddress;
use crate::request::Answer;

/// How long nodes have to answer before a change is judged.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// The request under way; a node serves one at a time.
#[derive(Debug, Default)]
pub(super) struct Requests {
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    token: Token,
    request: MembersRequest,
    /// When the nodes that did not answer count as missing; `None` once the change is proposed.
    judged_at: Option<Instant>,
    plan: MembersPlan,
}

impl Requests {
    pub(super) fn next_at(&self) -> Instant {
        let judged_at = self.under_way.as_ref().and_then(|one| one.judged_at);
        judged_at.unwrap_or(Instant::MAX)
    }
}

fn refused(problem: impl ToString) -> Answer {
    Answer::Members(Box::new(Err(MembersError::Refused(problem.to_string()))))
}

fn ids(members: &[Member]) -> Vec<u16> {
    members.iter().map(|member| member.node.get()).collect()
}

impl Driver {
    /// Begins to serve a request.
    pub(crate) fn change_members(&mut self, now: Instant, token: Token, request: MembersRequest) {
        match self.prepare(now, token, request) {
            Ok(()) => self.tick_requests(now),
            Err(problem) => self.reply(now, token, refused(problem)),
        }
    }

    fn prepare(
        &mut self,
        now: Instant,
        token: Token,
        request: MembersRequest,
    ) -> Result<(), String> {
        let Some(decisions) = &mut self.decisions else {
            return Err(
                "this node has no data_dir, so its list of members is fixed: to change the \
                        members, start every node with a data_dir"
                    .to_owned(),
            );
        };
        if decisions.requests.under_way.is_some() {
            return Err("another administrator is changing the members through this node: wait \
                        until that is decided, and try again"
                .to_owned());
        }
        let configuration = decisions.decider.configuration();
        let (own, birth) = (self.peers.identity.node, self.peers.identity.birth);
        if configuration.epoch() > 0
            && configuration.old().find(own).is_none_or(|member| member.birth != birth)
        {
            return Err(ChangeError::NotMember.to_string());
        }
        if let Some(to) = configuration.new_set()
            && request.change != MembersChange::Abort
        {
            let left = decisions.decider.drain_left(now).unwrap_or_default().as_secs();
            return Err(format!(
                "a change from {:?} to {:?} is under way, for about {left} s more: wait until it \
                 ends, or abort it",
                ids(configuration.old()),
                ids(to)
            ));
        }
        let change = wanted(&decisions.decider, &request.change)?;
        match configuration.after(&change, Ballot::ZERO) {
            // Its birth is asked for now.
            Ok(_) | Err(ChangeError::BirthUnknown(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        let (to, candidates) = match change {
            Change::Begin(to) => (ids(&to), Some(to)),
            Change::Same(to) => (ids(&to), None),
            Change::End | Change::Abort => (ids(configuration.old()), None),
        };
        let (epoch, from) = (configuration.epoch(), ids(configuration.old()));
        let plan = MembersPlan { epoch, from, to, ..MembersPlan::default() };
        let judged_at = Some(now.after(POLL_TIMEOUT));
        decisions.requests.under_way = Some(UnderWay { token, request, judged_at, plan });
        self.decide(now, |decider, _| {
            decider.forget_states();
            decider.poll(candidates.as_ref());
        });
        Ok(())
    }

    /// Judges the request under way, once all nodes have answered or had time to.
    pub(super) fn tick_requests(&mut self, now: Instant) {
        let own = self.peers.identity.node;
        let Some(decisions) = &mut self.decisions else { return };
        let decider = &decisions.decider;
        let Some(UnderWay { token, request, judged_at: Some(judged_at), plan }) =
            &mut decisions.requests.under_way
        else {
            return;
        };
        let is_heard = |node: &u16| {
            NodeId::new(*node).is_some_and(|node| node == own || decider.heard(node).is_some())
        };
        let mut asked: Vec<u16> = plan.from.iter().chain(&plan.to).copied().collect();
        asked.sort_unstable();
        asked.dedup();
        if now < *judged_at && !asked.iter().all(is_heard) {
            return;
        }
        plan.unreachable = asked.into_iter().filter(|node| !is_heard(node)).collect();
        let token = *token;
        let change = match wanted(decider, &request.change) {
            Ok(change) => change,
            Err(problem) => return self.finish_request(now, refused(problem)),
        };
        judge(decider, (own, self.shard.quarantine_as_member(now)), &change, plan);
        for node in plan.to.iter().filter(|node| !plan.from.contains(node)) {
            if NodeId::new(*node).is_some_and(|id| self.peers.only_proposes(id)) {
                let problem = format!("node {node} only proposes: start it as a member");
                plan.problems.push(problem);
            }
        }
        // What the others said dates from the last change of the members.
        let longest = decisions.shards.iter().map(|shard| shard.longest).max().flatten();
        plan.takes = plan.takes.max(decider.wait_for(longest));
        let answer = if request.dry_run {
            Answer::Members(Box::new(Ok(plan.clone())))
        } else if !plan.problems.is_empty() {
            refused(plan.problems.join("; "))
        } else if !plan.doubts.is_empty() && !request.yes {
            let text = format!("{}: confirm this by `yes`", plan.doubts.join("; "));
            Answer::Members(Box::new(Err(MembersError::Unconfirmed(text))))
        } else {
            if let Some(under_way) = &mut decisions.requests.under_way {
                under_way.judged_at = None;
            }
            let mut outcome = Ok(());
            self.decide(now, |decider, view| outcome = decider.begin(now, token, change, view));
            match outcome {
                Ok(()) => return,
                Err(error) => refused(error),
            }
        };
        self.finish_request(now, answer);
    }

    /// The change of the request under way was decided, or was not.
    pub(super) fn request_decided(
        &mut self,
        now: Instant,
        token: Token,
        outcome: Result<u32, MembersError>,
    ) {
        let Some(decisions) = &mut self.decisions else { return };
        let under_way = decisions.requests.under_way.as_ref();
        let Some(UnderWay { plan, .. }) = under_way.filter(|one| one.token == token) else {
            return;
        };
        let decided = |epoch| MembersPlan { decided: Some(epoch), ..plan.clone() };
        let answer = outcome.map(decided);
        self.finish_request(now, Answer::Members(Box::new(answer)));
    }

    fn finish_request(&mut self, now: Instant, answer: Answer) {
        let Some(decisions) = &mut self.decisions else { return };
        if let Some(UnderWay { token, .. }) = decisions.requests.under_way.take() {
            self.reply(now, token, answer);
        }
    }
}

/// The change that an administrator wants. Births of newcomers come from what they said last.
fn wanted(decider: &Decider, change: &MembersChange) -> Result<Change, String> {
    let configuration = decider.configuration();
    let old = configuration.old();
    let id = |id: u16| NodeId::new(id).ok_or(format!("{id} is not a node id: use 1 to 1023"));
    let peer = |node: NodeId, address: &str| match PeerAddress::parse(address) {
        Ok(address) => Ok(address.into_text()),
        Err(error) => Err(format!("{address:?} is not an address for node {node}: {error}")),
    };
    let newcomer = |node: NodeId, address: &str| {
        let past = configuration.past().iter().find(|past| past.0 == node).map(|past| past.1);
        let birth = decider.heard(node).map(|(birth, _)| birth).or(past);
        let birth = birth.unwrap_or(Birth::UNKNOWN);
        peer(node, address).map(|peer| Member { node, birth, peer })
    };
    let mut target: BTreeMap<NodeId, Member> =
        old.iter().map(|member| (member.node, member.clone())).collect();
    let no_member = |node: NodeId| format!("node {node} is not a member: look at the members");
    match change {
        MembersChange::Abort => return Ok(Change::Abort),
        MembersChange::Edit { remove, add } => {
            for gone in remove {
                let gone = id(*gone)?;
                target.remove(&gone).ok_or_else(|| no_member(gone))?;
            }
            for (node, address) in add {
                let node = id(*node)?;
                if target.insert(node, newcomer(node, address)?).is_some() {
                    return Err(format!(
                        "node {node} is a member already, or is listed twice. A node that lost its \
                         disk needs an id that was never used"
                    ));
                }
            }
        }
        MembersChange::Set(list) => {
            target.clear();
            for (node, address) in list {
                let node = id(*node)?;
                let member = match (old.find(node), address) {
                    (Some(member), None) => member.clone(),
                    (Some(member), Some(address)) => {
                        Member { peer: peer(node, address)?, ..member.clone() }
                    }
                    (None, Some(address)) => newcomer(node, address)?,
                    (None, None) => {
                        return Err(format!(
                            "node {node} is not a member yet: give its address, as \
                             {node}=HOST:PORT"
                        ));
                    }
                };
                if target.insert(node, member).is_some() {
                    return Err(ChangeError::ListedTwice(node).to_string());
                }
            }
        }
        MembersChange::Address(list) => {
            for (node, address) in list {
                let node = id(*node)?;
                let member = target.get_mut(&node).ok_or_else(|| no_member(node))?;
                member.peer = peer(node, address)?;
            }
        }
    }
    let members =
        Members::new(target.into_values().collect()).map_err(|error| error.to_string())?;
    Ok(match change {
        MembersChange::Address(_) => Change::Same(members),
        _ => Change::Begin(members),
    })
}

/// C7: whether the nodes are ready for a change, and what an administrator should confirm.
fn judge(
    decider: &Decider,
    (own, own_quarantine): (NodeId, Duration),
    change: &Change,
    plan: &mut MembersPlan,
) {
    let old = decider.configuration().old();
    let quarantine = |member: &Member| {
        if member.node == own {
            return Some(own_quarantine);
        }
        let (birth, state) = decider.heard(member.node)?;
        (birth == member.birth).then_some(state.quarantine_left)
    };
    let is_heard = |member: &&Member| quarantine(member).is_some();
    let votes = |member: &&Member| quarantine(member).is_some_and(|left| left.is_zero());
    if !old.majority(is_heard) {
        let from = &plan.from;
        let problem = format!("no majority of the members {from:?} answers: start the others");
        plan.problems.push(problem);
    }
    let longest = old.iter().filter_map(|member| decider.heard(member.node)?.1.longest);
    plan.takes = decider.wait_for(longest.max());
    let Change::Begin(to) = change else { return };
    let waits = |member: &&Member| is_heard(member) && !votes(member);
    plan.quarantined =
        old.iter().chain(&**to).filter(waits).map(|member| member.node.get()).collect();
    plan.quarantined.sort_unstable();
    plan.quarantined.dedup();
    for member in to.iter().filter(|member| old.find(member.node).is_none()) {
        let node = member.node;
        let Some((birth, state)) = decider.heard(node) else {
            let was_member = decider.configuration().past().iter().any(|past| past.0 == node);
            let what_to_do = if was_member {
                "it was a member before: start it with the data_dir that it had then, or use an id \
                 that was never used"
            } else {
                "start it with the name of this cell, a data_dir, and the address of a member"
            };
            plan.problems.push(format!("node {node} does not answer: {what_to_do}"));
            continue;
        };
        if birth == Birth::UNKNOWN {
            let problem = format!("node {node} has no data_dir: a member needs one");
            plan.problems.push(problem);
        }
        let is_missed = |old: &&Member| is_heard(old) && !state.reaches.contains(&old.node);
        let missed: Vec<String> =
            old.iter().filter(is_missed).map(|member| member.node.to_string()).collect();
        if !missed.is_empty() {
            plan.problems.push(format!(
                "node {node} is not connected to {}: check the addresses and the network",
                missed.join(", ")
            ));
        }
    }
    if plan.problems.is_empty() && !to.majority(is_heard) {
        let to = &plan.to;
        let problem = format!("no majority of the new members {to:?} answers: start the others");
        plan.problems.push(problem);
    } else if plan.problems.is_empty() && !to.majority(votes) {
        // They would confirm no renewal, and leases would be lost.
        let left = to.iter().filter_map(quarantine).max().unwrap_or_default();
        let to = &plan.to;
        plan.problems.push(format!(
            "no majority of the new members {to:?} votes yet, because some were restarted: try \
             again in {:.0} s",
            left.as_secs_f64().ceil()
        ));
    }
    let survives = |members: &Members| {
        let missing = members.iter().filter(|member| !votes(member)).count();
        ((members.len() - 1) / 2).saturating_sub(missing)
    };
    let (now, then) = (survives(old), survives(to));
    if then < now {
        plan.doubts.push(format!(
            "the cell survives the loss of {now} of its members now, and of {then} after the change"
        ));
    }
    if to.len() % 2 == 0 {
        let (even, odd) = (to.len(), to.len() - 1);
        plan.doubts.push(format!("{even} members survive no more losses than {odd}"));
    }
}
