//! The world's interface to a node of the paper's algorithm.

use paxoslease_core::{Instant, Message, Name, NodeId, Tenure, Token};

use super::acceptor::Proposal;
use super::{PaperNode, PaperRequest, Resource, WAITING_MAX};
use crate::algorithm::{Answer, Command, Output, Process, View};
use crate::packet::decoded;

impl Process for PaperNode {
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]) {
        match decoded(bytes) {
            Message::Request(request) => {
                if let Some(reply) = self.ask(now, request) {
                    self.out.send([from], 0, &Message::Reply(reply));
                }
            }
            Message::Reply(response) => {
                self.on_response(now, from, response);
                self.settle(now, None);
            }
            Message::Hint(_) | Message::Durable(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        for name in self.resources.keys().cloned().collect::<Vec<_>>() {
            if self.resource(&name).proposer.timer.is_some_and(|at| at <= now) {
                self.on_timer(now, &name);
            }
            if self.resource(&name).wake_at.is_some_and(|at| at <= now) {
                self.on_wake(now, &name);
            }
            let waiting = &mut self.resource(&name).waiting;
            let late: Vec<PaperRequest> =
                waiting.iter().filter(|p| p.deadline <= now).copied().collect();
            waiting.retain(|pending| pending.deadline > now);
            for pending in late {
                self.out.answer(pending.token, Answer::Denied);
            }
            self.settle(now, Some(&name));
        }
    }

    fn handle_command(&mut self, now: Instant, token: Token, name: Name<'_>, command: Command) {
        if now < self.rejoins_at && command != Command::Abandon {
            return self.out.answer(token, Answer::Refused);
        }
        match command {
            Command::Acquire { ttl, wait } => {
                let Ok(ttl) = self.cell.ttl(ttl) else {
                    return self.out.answer(token, Answer::Refused);
                };
                let trying = self.tuning.request_timeout.min(ttl.as_duration());
                let pending = PaperRequest::new(token, ttl, now, wait.max(trying));
                let resource = self.resource(name.as_str());
                if resource.client.is_some() && wait.is_zero() {
                    self.out.answer(token, Answer::Denied);
                } else if resource.waiting.len() >= WAITING_MAX {
                    self.out.answer(token, Answer::Refused);
                } else {
                    resource.waiting.push_back(pending);
                }
            }
            Command::Renew { tenure, ttl } => {
                let Ok(ttl) = self.cell.ttl(ttl) else {
                    return self.out.answer(token, Answer::Refused);
                };
                let trying = self.tuning.request_timeout.min(ttl.as_duration());
                let resource = self.resource(name.as_str());
                if resource.client != Some(tenure) || !resource.proposer.lease_owner {
                    self.out.answer(token, Answer::NotHeld);
                } else if resource.request.is_some() {
                    self.out.answer(token, Answer::NoQuorum);
                } else {
                    let pending = PaperRequest::new(token, ttl, now, trying);
                    resource.request = Some(PaperRequest { extends: Some(tenure), ..pending });
                    self.begin(now, name.as_str());
                }
            }
            Command::Release { tenure, .. } => {
                self.release(now, name, tenure);
                self.out.answer(token, Answer::Released);
            }
            Command::AcquireDurable { .. }
            | Command::Keep { .. }
            | Command::ReleaseDurable { .. } => self.out.answer(token, Answer::NoQuorum),
            Command::Abandon => {
                let resource = self.resource(name.as_str());
                resource.waiting.retain(|pending| pending.token != token);
                if resource.request.take_if(|pending| pending.token == token).is_some() {
                    resource.proposer.ballot = None;
                    resource.wake_at = None;
                }
            }
        }
        self.settle(now, Some(name.as_str()));
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.out.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let wakes = self.resources.values().flat_map(|resource| {
            let waiting = resource.waiting.iter().map(|pending| pending.deadline);
            waiting.chain(resource.wake_at).chain(resource.proposer.timer)
        });
        wakes.min()
    }

    fn view(&self, name: Name<'_>) -> Option<View> {
        self.cell.member(self.node)?;
        let Some(Resource { acceptor, .. }) = self.resources.get(name.as_str()) else {
            return Some(View::default());
        };
        let accepted = acceptor
            .accepted_proposal
            .and_then(|Proposal { ballot, expires_at }| Some((Tenure::of(ballot)?, expires_at)));
        Some(View { promised: acceptor.highest_promised, accepted })
    }

    fn quarantine_until(&self, now: Instant) -> Option<Instant> {
        (now < self.rejoins_at).then_some(self.rejoins_at)
    }

    fn in_flight(&self) -> usize {
        let busy =
            |resource: &Resource| resource.waiting.len() + usize::from(resource.request.is_some());
        self.resources.values().map(busy).sum()
    }
}
