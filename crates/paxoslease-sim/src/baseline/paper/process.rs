//! The world's interface to a node of the paper's algorithm.

use paxoslease_core::{Instant, Message, Name, NodeId, Reply, Seen, Tenure, Token};

use super::acceptor::Proposal;
use super::{PaperNode, PaperRequest, Resource, Response, WAITING_MAX, decoded};
use crate::algorithm::{Answer, Command, Disk, Output, Process, View};

impl Process for PaperNode {
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]) {
        let response = match decoded(bytes) {
            Message::Request(request) => {
                if let Some(response) = self.ask(now, request) {
                    self.reply(now, from, response);
                }
                return;
            }
            Message::Reply(Reply::Promise { ballot, accepted }) => {
                let proposal = |seen: Seen<'_>| {
                    let expires_at = now.after(seen.remaining.as_duration());
                    Proposal { ballot: seen.tenure.ballot(), expires_at }
                };
                Response::Prepare { ballot, accepted: accepted.map(proposal) }
            }
            Message::Reply(Reply::Accept { ballot }) => Response::Propose { ballot },
            Message::Reply(Reply::Reject { ballot, promised, .. }) => {
                Response::Reject { ballot, promised }
            }
            Message::Reply(_) | Message::Hint(_) => return,
        };
        self.on_response(now, from, response);
        self.settle(now, None);
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

    fn handle_tick(&mut self, _now: Instant) {}

    fn handle_persisted(&mut self, _now: Instant, _record: &[u8]) {}

    fn handle_command(&mut self, now: Instant, token: Token, command: Command<'_>) {
        if now < self.rejoins_at {
            return self.out.answer(token, Answer::Refused);
        }
        let (Command::Acquire { name, .. }
        | Command::Renew { name, .. }
        | Command::Release { name, .. }) = command;
        match command {
            Command::Acquire { ttl, wait, .. } => {
                let Ok(ttl) = self.cell.ttl(ttl) else {
                    return self.out.answer(token, Answer::Refused);
                };
                let trying = self.tuning.request_timeout.min(ttl.as_duration());
                let deadline = now.after(wait.max(trying));
                let (extends, failures, asleep) = (None, 0, false);
                let pending =
                    PaperRequest { token, ttl, asked_at: now, deadline, extends, failures, asleep };
                let resource = self.resource(name.as_str());
                if resource.client.is_some() && wait.is_zero() {
                    self.out.answer(token, Answer::Denied);
                } else if resource.waiting.len() >= WAITING_MAX {
                    self.out.answer(token, Answer::Refused);
                } else {
                    resource.waiting.push_back(pending);
                }
            }
            Command::Renew { tenure, ttl, .. } => {
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
                    let deadline = now.after(trying);
                    let (extends, failures, asleep) = (Some(tenure), 0, false);
                    resource.request = Some(PaperRequest {
                        token,
                        ttl,
                        asked_at: now,
                        deadline,
                        extends,
                        failures,
                        asleep,
                    });
                    self.begin(now, name.as_str());
                }
            }
            Command::Release { tenure, .. } => {
                self.release(now, name, tenure);
                self.out.answer(token, Answer::Released);
            }
        }
        self.settle(now, Some(name.as_str()));
    }

    fn handle_gone(&mut self, now: Instant, token: Token, name: Name<'_>) {
        let resource = self.resource(name.as_str());
        resource.waiting.retain(|pending| pending.token != token);
        if resource.request.take_if(|pending| pending.token == token).is_some() {
            resource.proposer.ballot = None;
            resource.wake_at = None;
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

    fn stop(self, _now: Instant, _disk: Option<&mut Disk>) {}

    fn in_flight(&self) -> usize {
        let busy =
            |resource: &Resource| resource.waiting.len() + usize::from(resource.request.is_some());
        self.resources.values().map(busy).sum()
    }
}
