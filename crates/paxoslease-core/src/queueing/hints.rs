//! What a shard makes of names that come free or are taken elsewhere: whose turn it is, whom to
//! tell, what watchers hear (protocol section 7). Hints, all of it: losing any costs time only.

use alloc::vec::Vec;

use crate::outbox::{Body, Event, Sighting, To};
use crate::protocol::acceptor::Acceptor;
use crate::{Hint, Holder, Instant, Label, Name, NodeId, Request, Shard};

impl Shard {
    pub(crate) fn handle_hint(&mut self, now: Instant, hint: Hint<'_>) {
        match hint {
            Hint::Held { name, seen } => {
                if self.watched {
                    let label = Label::new(name, seen.holder);
                    let (tenure, remaining) = (seen.tenure, seen.remaining);
                    self.out.emit(Event::HeldHint(Sighting { tenure, remaining, label }));
                }
            }
            Hint::Freed { name, nodes_before } => {
                if self.watched {
                    self.out.emit(Event::FreedHint(Label::new(name, Holder::NONE)));
                }
                self.with_proposer(now, |proposer, env| {
                    proposer.on_freed(env, now, name, (false, nodes_before.into()));
                });
            }
        }
    }

    /// A name may be free. The undoing of a lost round, where somebody else holds it, frees
    /// nothing.
    pub(crate) fn note_freed(&mut self, now: Instant, from: NodeId, request: Request<'_>) {
        let Request::Release { name, tenure } = request else { return };
        if self.proposer.has_healed() {
            let label = Label::new(name, Holder::NONE);
            self.with_proposer(now, |proposer, env| {
                proposer.on_foreign_release(env, label, tenure);
            });
        }
        if !self.somebody_wants(name) || self.live_tenure(now, name).is_some() {
            return;
        }
        let turns = self.turns(now, name, from);
        let nodes_before = self.nodes_before(&turns);
        self.with_proposer(now, |proposer, env| {
            proposer.on_freed(env, now, name, (false, nodes_before));
        });
        self.tell_freed(name, &turns);
    }

    /// A name is somebody else's.
    pub(crate) fn note_taken(&mut self, now: Instant, request: Request<'_>) {
        let Request::Propose { name, .. } = request else { return };
        if self.proposer.wants(name)
            && let Some(by) = self.lease(now, name)
        {
            self.with_proposer(now, |proposer, env| proposer.on_taken(env, &by));
        }
    }

    /// Whether anybody could care that a name is free.
    pub(crate) fn somebody_wants(&self, name: Name<'_>) -> bool {
        self.proposer.wants(name) || self.acceptor.as_ref().is_some_and(Acceptor::turned_away)
    }

    pub(crate) fn turns(&mut self, now: Instant, name: Name<'_>, from: NodeId) -> Vec<NodeId> {
        let Some(acceptor) = &mut self.acceptor else { return Vec::new() };
        let waits_here = self.proposer.wants(name).then_some(self.config.node);
        let turn_span = self.proposer.turn_span(&self.config);
        acceptor.turns(now, name, from, waits_here, turn_span)
    }

    /// How many nodes have their turn before this one; all of them if it was not turned away.
    pub(crate) fn nodes_before(&self, turns: &[NodeId]) -> usize {
        turns.iter().position(|node| *node == self.config.node).unwrap_or(turns.len())
    }

    /// Acceptors see the Release itself; nodes that only propose are told.
    pub(crate) fn tell_freed(&mut self, name: Name<'_>, turns: &[NodeId]) {
        for (nodes_before, node) in (0..=u8::MAX).zip(turns) {
            if self.config.cell.member(*node).is_none() {
                let label = Label::new(name, Holder::NONE);
                self.out.send(To::Node(*node), Body::Freed { label, nodes_before });
            }
        }
    }

    pub(crate) fn watch_request(
        &mut self,
        now: Instant,
        request: Request<'_>,
        answer: Option<&Body>,
    ) {
        if !self.watched {
            return;
        }
        let event = match (request, answer) {
            (Request::Propose { name, .. }, Some(Body::Accept { .. })) => {
                self.lease(now, name).map(Event::HeldHint)
            }
            (Request::Release { name, .. }, Some(Body::Released { held: true, .. })) => {
                Some(Event::FreedHint(Label::new(name, Holder::NONE)))
            }
            _ => None,
        };
        if let Some(event) = event {
            self.out.emit(event);
        }
    }
}
