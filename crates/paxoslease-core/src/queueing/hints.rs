//! What a shard does when a name is freed or taken: it looks up the turns, tells other nodes, and
//! emits events for watchers (protocol section 7). These are hints: losing any costs only time.

use alloc::vec::Vec;

use super::waiting::Freed;
use crate::outbox::{Body, Event, Outbox, Sighting, To};
use crate::{Hint, Holder, Instant, Label, Name, NodeId, ReleaseId, Request, Shard, Tenure};

impl Shard {
    /// Tells a text to the clients that watch a name, at this node and at every other that it
    /// knows: [`Event::NoteHint`]. At most once, and nothing relies on it.
    pub fn note(&mut self, name: Name<'_>, text: Holder<'_>) {
        let label = Label::new(name, text);
        if self.watched {
            self.out.emit(Event::NoteHint(label.clone()));
        }
        for learner in &self.learners {
            self.out.send(To::Node(*learner), Body::Note(label.clone()));
        }
        let everyone = self.config.cell.everyone();
        let others = self.own.map_or(everyone, |own| everyone.without(own));
        self.out.send(To::Members(others), Body::Note(label));
    }

    pub(crate) fn handle_hint(&mut self, now: Instant, hint: Hint<'_>) {
        match hint {
            Hint::Held { name, seen } => {
                if self.watched {
                    let label = Label::new(name, seen.holder);
                    let (tenure, remaining) = (seen.tenure, seen.remaining);
                    self.out.emit(Event::HeldHint(Sighting { tenure, remaining, label }));
                }
            }
            Hint::Note { name, text } => {
                if self.watched {
                    self.out.emit(Event::NoteHint(Label::new(name, text)));
                }
            }
            Hint::Freed { name, nodes_before } => {
                if self.watched {
                    let label = Label::new(name, Holder::NONE);
                    self.out.emit(Event::FreedHint { label, tenure: None });
                }
                self.with_proposer(now, |proposer, env| {
                    let nodes_before = usize::from(nodes_before);
                    let is_turn = nodes_before == 0;
                    let freed = Freed { released_here: false, nodes_before, is_turn };
                    proposer.on_freed(env, now, name, freed);
                });
            }
        }
    }

    /// A peer's Release may have freed a name. The Release of a lost round frees nothing while
    /// another tenure is live.
    pub(crate) fn note_freed(
        &mut self,
        now: Instant,
        from: NodeId,
        name: Name<'_>,
        (tenure, id): (Tenure, ReleaseId),
    ) {
        if self.proposer.follows_releases() {
            let label = Label::new(name, Holder::NONE);
            self.with_proposer(now, |proposer, env| {
                proposer.on_foreign_release(env, label, tenure, id);
            });
        }
        if !self.is_waited_for(name) || self.live_tenure(now, name).is_some() {
            return;
        }
        let turns = self.turns(now, name, from);
        let nodes_before = self.nodes_before(&turns);
        self.with_proposer(now, |proposer, env| {
            let is_turn = nodes_before == 0 && !turns.is_empty();
            let freed = Freed { released_here: false, nodes_before, is_turn };
            proposer.on_freed(env, now, name, freed);
        });
        self.send_freed(name, &turns);
    }

    fn sighting(&self, now: Instant, name: Name<'_>) -> Option<Sighting> {
        self.acceptor.as_ref()?.sighting(now, name)
    }

    pub(crate) fn live_tenure(&self, now: Instant, name: Name<'_>) -> Option<Tenure> {
        self.register(name)?.live(now).map(|live| live.tenure)
    }

    /// The acceptor here may have accepted a peer's Propose.
    pub(crate) fn note_taken(&mut self, now: Instant, name: Name<'_>) {
        if self.proposer.has_waiters(name)
            && let Some(by) = self.sighting(now, name)
        {
            self.with_proposer(now, |proposer, env| proposer.on_taken(env, now, &by));
        }
    }

    /// Whether a request here or a node in some queue may wait for a name.
    pub(crate) fn is_waited_for(&self, name: Name<'_>) -> bool {
        self.proposer.has_waiters(name)
            || self.acceptor.as_ref().is_some_and(|acceptor| !acceptor.turns.is_empty())
    }

    /// The nodes in the queue for a name that `from` freed, in the order of their turns.
    pub(crate) fn turns(&mut self, now: Instant, name: Name<'_>, from: NodeId) -> Vec<NodeId> {
        match &mut self.acceptor {
            Some(acceptor) if !acceptor.turns.is_empty() => {
                let waits_here = self.proposer.has_waiters(name).then_some(self.config.node);
                let turn_span = self.proposer.turn_span(&self.config);
                let Some(slot) = acceptor.table().find(name) else { return Vec::new() };
                let request_timeout = self.config.request_timeout;
                acceptor.turns.on_freed(now, slot, from, waits_here, turn_span, request_timeout)
            }
            _ => Vec::new(),
        }
    }

    /// How many nodes have their turn before this one; all of them if it has no place.
    pub(crate) fn nodes_before(&self, turns: &[NodeId]) -> usize {
        turns.iter().position(|node| *node == self.config.node).unwrap_or(turns.len())
    }

    /// Until when the acceptor here reserves a name for other nodes.
    pub(crate) fn reserved_until(&self, now: Instant, name: Name<'_>) -> Option<Instant> {
        let acceptor = self.acceptor.as_ref().filter(|acceptor| !acceptor.turns.is_empty())?;
        acceptor.turns.reserved_until(now, acceptor.table().find(name)?, self.config.node)
    }

    /// Tells the nodes that only propose. Acceptors see the Release itself.
    pub(crate) fn send_freed(&mut self, name: Name<'_>, turns: &[NodeId]) {
        for (nodes_before, node) in (0..=u8::MAX).zip(turns) {
            if self.config.cell.member(*node).is_none() {
                let label = Label::new(name, Holder::NONE);
                self.out.send(To::Node(*node), Body::Freed { label, nodes_before });
            }
        }
    }

    /// Emits what the acceptor's answer to a request means to watchers. A round of this node is not
    /// held before a majority accepted it, and its undo frees nothing. Of a round of another node
    /// only that node knows.
    #[cold]
    pub(crate) fn watch_request(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &Request<'_>,
        answer: &Body,
    ) {
        let is_own = from == self.config.node;
        let event = match (*request, answer) {
            (Request::Propose { name, .. }, Body::Accept { .. }) if !is_own => {
                self.sighting(now, name).map(Event::HeldHint)
            }
            (Request::Release { name, tenure, id }, Body::Released { by: Some(by), .. })
                if *by == id && !(is_own && self.proposer.is_undone(tenure)) =>
            {
                let label = Label::new(name, Holder::NONE);
                Some(Event::FreedHint { label, tenure: Some(tenure) })
            }
            _ => None,
        };
        if let Some(event) = event {
            self.out.emit(event);
        }
    }
}

/// Emits a hint for each expired lease, if the shard is watched.
pub(crate) fn expired_hints(watched: bool, out: &mut Outbox) -> impl FnMut(&Label, Tenure) {
    move |label, tenure| {
        if watched {
            out.emit(Event::ExpiredHint { label: label.clone(), tenure });
        }
    }
}
