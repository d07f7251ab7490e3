//! The messages under way: which of them can still matter, and which are stale for ever.

use paxoslease_core::{Ballot, DurableMessage, MemberSet, Message, Phase, Reply, Request, Tenure};

use super::{NET_WORDS, Packet, State, Subject, World, mix};
use crate::node::{Input, NodeView};

impl World {
    /// Whether a message can ever have an effect. Hints have none, because no client waits; for
    /// replies see [`Self::counts`].
    pub(super) fn matters(&self, state: &State, from: u8, to: u8, content: u32) -> bool {
        let message = self.nodes.content(content);
        if self.is_past(state, usize::from(to), self.epoch(state, usize::from(from))) {
            return false;
        }
        match message {
            Message::Hint(_) => false,
            Message::Request(Request::Release { .. }) => {
                self.bounds.releases > 0 || !self.bounds.has_registers()
            }
            Message::Request(_) => true,
            Message::Reply(reply) => self.counts(self.view(state, usize::from(to)), from, reply),
            Message::Durable(message) => {
                message.name().is_some()
                    || counts_for(self.view(state, usize::from(to)), message)
                        && self.is_news(state, from, to, message)
            }
        }
    }

    /// Whether a promise of this node for this ballot is under way.
    pub(super) fn is_answered(&self, state: &State, from: u8, to: u8, ballot: Ballot) -> bool {
        let is_promise = |packet: &Packet| {
            (packet.from, packet.to, packet.answers) == (from, to, Some(Subject::Round(ballot)))
                && matches!(
                    self.nodes.content(packet.content),
                    Message::Durable(DurableMessage::Promise { .. })
                )
        };
        state.net.iter().enumerate().any(|(word, bits)| {
            let mut bits = *bits;
            while bits != 0 {
                if is_promise(&self.packets[word * 64 + bits.trailing_zeros() as usize]) {
                    return true;
                }
                bits &= bits - 1;
            }
            false
        })
    }

    /// Whether an answer can still affect a proposer. An answer to a finished round or phase is
    /// stale for ever, because no ballot is used twice. Without retries, a Reject only raises a
    /// counter: its round may end at any time anyway. Each node releases a tenure once, so a
    /// confirmation of a finished release is stale too.
    fn counts(&self, proposer: &NodeView, from: u8, reply: Reply<'_>) -> bool {
        if let Reply::Released { tenure, .. } = reply {
            let member = self.nodes.member(usize::from(from));
            let lacks = |confirmed: MemberSet| !confirmed.contains(member);
            let mut releases = proposer.releases.iter();
            return self.bounds.confirmations
                && releases.any(|(of, confirmed, _)| *of == tenure && lacks(*confirmed));
        }
        if !self.forgets_answers {
            return true;
        }
        let phase = match subject(&Message::Reply(reply)) {
            Some(Subject::Round(ballot)) => {
                proposer.rounds.iter().find(|round| round.0 == ballot).map(|round| round.1)
            }
            Some(Subject::Release(_)) | None => None,
        };
        match (reply, phase) {
            (Reply::Promise { .. }, Some(phase)) => phase == Phase::Preparing,
            (Reply::Accept { .. }, Some(phase)) => {
                matches!(phase, Phase::Proposing | Phase::Renewing)
            }
            (Reply::Reject { promised, .. }, Some(_)) => {
                self.bounds.retries || promised.counter() > proposer.counter
            }
            (Reply::NotHeld { .. }, Some(_)) => true,
            (Reply::Healed { .. } | Reply::NotHealed { .. }, Some(phase)) => {
                phase == Phase::Storing
            }
            _ => false,
        }
    }

    pub(super) fn is_answer(&self, input: Input) -> bool {
        matches!(input, Input::Deliver { content, .. }
            if subject(&self.nodes.content(content)).is_some())
    }

    /// Removes the answers that a step of this node made stale.
    pub(super) fn forget_answers(&self, state: &mut State, node: usize, before: u32) {
        let before = &self.nodes.views[before as usize];
        let after = &self.nodes.views[state.nodes[node] as usize];
        if before.rounds == after.rounds
            && before.counter == after.counter
            && before.releases == after.releases
            && before.changes == after.changes
        {
            return;
        }
        self.forget(state, |packet| {
            let is_answer = usize::from(packet.to) == node && packet.answers.is_some();
            is_answer
                && match self.nodes.content(packet.content) {
                    Message::Reply(reply) => !self.counts(after, packet.from, reply),
                    Message::Durable(message) => !counts_for(after, message),
                    Message::Request(_) | Message::Hint(_) => false,
                }
        });
    }

    /// Removes messages that can have no effect any more.
    pub(super) fn forget(&self, state: &mut State, is_stale: impl Fn(&Packet) -> bool) {
        for word in 0..NET_WORDS {
            let mut bits = state.net[word];
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                bits &= bits - 1;
                let packet = self.packets[word * 64 + bit.trailing_zeros() as usize];
                if is_stale(&packet) {
                    state.net[word] &= !bit;
                    let sum = &mut state.net_sums[usize::from(packet.acceptor)];
                    *sum = sum.wrapping_sub(packet.identity);
                }
            }
        }
    }

    pub(super) fn post(&mut self, state: &mut State, from: u8, to: u8, content: u32) {
        let epoch = self.epoch(state, usize::from(from));
        let key = (from, to, epoch, content);
        let id = match self.by_packet.get(&key) {
            Some(known) => *known,
            None => {
                let id = u16::try_from(self.packets.len()).expect("at most 65,536 messages");
                assert!(usize::from(id) < NET_WORDS * 64, "more messages than the network holds");
                let (acceptor, rest) = if self.bounds.proposers == 0 {
                    (to, u64::from(from) << 32)
                } else if self.bounds.is_acceptor(usize::from(to)) {
                    (to, u64::from(from) << 32 | 1 << 48)
                } else {
                    (from, u64::from(to) << 32 | 2 << 48)
                };
                let identity = mix(u64::from(content) | rest, 7 + u64::from(epoch));
                let answers = subject(&self.nodes.content(content));
                let packet = Packet { to, from, epoch, content, acceptor, identity, answers };
                self.packets.push(packet);
                self.by_packet.insert(key, id);
                id
            }
        };
        let (word, bit) = (usize::from(id) / 64, 1 << (id % 64));
        if state.net[word] & bit == 0 {
            state.net[word] |= bit;
            let packet = self.packets[usize::from(id)];
            let sum = &mut state.net_sums[usize::from(packet.acceptor)];
            *sum = sum.wrapping_add(packet.identity);
        }
    }
}

/// Whether an answer about a register can still affect a proposer, as in [`World::counts`].
fn counts_for(proposer: &NodeView, message: DurableMessage<'_>) -> bool {
    let stores = |of: Ballot| proposer.changes.iter().find(|it| it.0 == of).map(|it| it.1);
    match message {
        DurableMessage::Promise { ballot, .. } => stores(ballot) == Some(false),
        DurableMessage::Stored { ballot } => stores(ballot) == Some(true),
        DurableMessage::Refused { ballot, .. } => stores(ballot).is_some(),
        DurableMessage::Reject { ballot, promised } => {
            stores(ballot).is_some() || promised.counter() > proposer.counter
        }
        DurableMessage::IsDurable { ballot } => {
            let is_release = |it: &(Tenure, MemberSet, bool)| it.0.ballot() == ballot;
            proposer.rounds.iter().any(|round| round.0 == ballot)
                || proposer.releases.iter().any(is_release)
        }
        DurableMessage::Prepare { .. }
        | DurableMessage::Store { .. }
        | DurableMessage::Inspected { .. }
        | DurableMessage::All { .. } => true,
    }
}

/// What a message answers, if it is an answer that a proposer may only count.
pub(super) fn subject(message: &Message<'_>) -> Option<Subject> {
    match message {
        Message::Reply(
            Reply::Promise { ballot, .. }
            | Reply::Accept { ballot }
            | Reply::Reject { ballot, .. }
            | Reply::Healed { ballot }
            | Reply::NotHealed { ballot, .. }
            | Reply::NotHeld { ballot, .. },
        ) => Some(Subject::Round(*ballot)),
        Message::Reply(Reply::Released { tenure, .. }) => Some(Subject::Release(*tenure)),
        Message::Durable(message) if message.name().is_none() => {
            Some(Subject::Round(message.ballot()))
        }
        Message::Reply(Reply::Inspected { .. })
        | Message::Durable(_)
        | Message::Request(_)
        | Message::Hint(_) => None,
    }
}
