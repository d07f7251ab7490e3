//! One operation of a Redis-style client: reads keys, is evaluated, changes leases, replies.
//!
//! The evaluation runs against what is known of the keys. A reply that rests on a hint of this node
//! alone is never sent: either a change by tenure proves the hint, or a quorum is asked and the
//! operation is evaluated again. A change that finds its tenure over is evaluated again too. So a
//! script of a former holder can do nothing to the next one.

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_node::front::{
    Answer, Holder, Instant, Label, Lasts, Name, Request as LeaseRequest, ShardHandle,
};
use paxoslease_wire::resp::{Protocol, put_array, put_bulk, put_error, put_integer, put_simple};
use slab::Slab;

use super::super::expected::State as Reserved;
use super::super::pending::{Owner, PendingRequest, RequestId};
use super::super::reply::put_answer;
use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::super::steps::TurnSteps;
use super::super::{Common, Deferred, Turn};
use super::keys::{Effect, Keys, Stored, Trust};
use super::program::{First, Program};
use super::script::{Reply, Run};
use crate::audit::{Entry, Event};
use crate::config::Verb;
use crate::durable::DurableRequest;

/// The number of an operation in its shard.
pub(in super::super) type OperationId = usize;

/// How often an operation is evaluated while other clients change its keys.
const TRIES_MAX: u32 = 64;
/// How often it is evaluated besides that to learn a key: by a hint, and then by a quorum.
const LEARNT_MAX: usize = 2;

/// The shortest time for which a lease is held.
const LASTS_MIN: Duration = Duration::from_millis(50);

/// What an operation waits for.
enum Phase {
    Learning(Trust),
    Changing(Effect),
    /// A free name; see `waiting.rs`.
    Waiting,
}

pub(in super::super) struct Operation {
    pub(super) session: usize,
    command: u64,
    pub(super) program: Program,
    pub(super) keys: Keys,
    first: First,
    phase: Phase,
    /// Requests without an answer.
    asked: Vec<RequestId>,
    effects: VecDeque<(usize, Effect)>,
    /// The reply, once every effect was applied.
    reply: Option<Reply>,
    /// The answer that ends the operation, once no request is left.
    failure: Option<Answer>,
    /// What the last request asked of a durable lease.
    durable: Option<DurableRequest>,
    /// The leases that it acquired: their requests, fences and keys.
    grants: Vec<(RequestId, u64, usize)>,
    tries: u32,
}

impl Operation {
    /// Its memory in bytes, roughly.
    fn cost(&self) -> usize {
        let len = |texts: &[Vec<u8>]| texts.iter().map(|text| text.len() + 64).sum::<usize>();
        let program = match &self.program {
            Program::Command(texts) | Program::Flush(texts) => len(texts),
            Program::Script { keys, args, .. } => len(keys) + len(args),
            Program::Wait(wait) => wait.list.len() + 2 * wait.lock.len(),
        };
        let keys = self.keys.keys.iter().map(|key| 4 * key.name.len() + 512);
        size_of::<Self>() + program + keys.sum::<usize>()
    }

    /// Whether its reply may take long.
    pub(in super::super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    /// Whether it is acquiring a lease, or has.
    fn acquires(&self) -> bool {
        !self.grants.is_empty() || matches!(self.phase, Phase::Changing(Effect::Acquire { .. }))
    }
}

/// The operations of one shard.
#[derive(Default)]
pub(in super::super) struct Operations(Slab<Option<Box<Operation>>>);

impl Operations {
    pub(super) fn take(&mut self, id: OperationId) -> Option<Box<Operation>> {
        self.0.get_mut(id)?.take()
    }

    pub(super) fn get(&self, id: OperationId) -> Option<&Operation> {
        self.0.get(id)?.as_deref()
    }

    fn put_back(&mut self, id: OperationId, operation: Box<Operation>) {
        self.0[id] = Some(operation);
    }

    fn remove(&mut self, id: OperationId) {
        self.0.remove(id);
    }

    /// Has the keys of an operation learnt anew.
    pub(super) fn forget_keys(&mut self, id: OperationId) {
        if let Some(Some(operation)) = self.0.get_mut(id) {
            (0..operation.keys.keys.len()).for_each(|place| operation.keys.forget(place));
            operation.tries = 0;
        }
    }

    /// The session of an operation.
    pub(in super::super) fn session(&self, id: OperationId) -> Option<usize> {
        Some(self.get(id)?.session)
    }

    pub(in super::super) fn waits(&self, id: OperationId) -> bool {
        self.get(id).is_some_and(Operation::waits)
    }

    /// The name that an operation waits for.
    pub(in super::super) fn waits_for(&self, id: OperationId) -> Option<&str> {
        match &self.get(id).filter(|operation| operation.waits())?.program {
            Program::Wait(wait) => Some(&wait.name),
            _ => None,
        }
    }

    /// Whether a client that sends nothing more may be gone before the reply matters to it.
    pub(in super::super) fn waits_or_acquires(&self, id: OperationId) -> bool {
        self.get(id).is_some_and(|operation| operation.waits() || operation.acquires())
    }
}

/// What comes next, after an evaluation.
enum Next {
    Learn(Vec<usize>, Trust),
    Change,
    Wait,
    Reply(Reply),
}

impl Operation {
    fn evaluate(&mut self, now: Instant, steps: &mut TurnSteps) -> Next {
        self.tries += 1;
        let learning = u32::try_from(LEARNT_MAX * self.keys.keys.len()).unwrap_or(u32::MAX);
        if self.tries > TRIES_MAX.saturating_add(learning) {
            let text = "BUSY the keys of this command kept changing; nothing is held; try again";
            return Next::Reply(Reply::Error(text.as_bytes().to_vec()));
        }
        self.keys.begin(now);
        let Run { reply, steps: spent } = self.program.run(&mut self.keys);
        steps.spend(spent);
        let unknown = self.keys.unknown();
        if !unknown.is_empty() {
            let trust = match self.first {
                First::AskQuorum => Trust::Quorum,
                First::LookHere | First::AssumeFree | First::AcquireOrNil => Trust::Hint,
            };
            return Next::Learn(unknown, trust);
        }
        // A script that fails half-way has changed nothing yet. Redis would keep the first half.
        let changes = match (&reply, self.keys.effects()) {
            (Reply::Error(text), _) => Err(text.clone()),
            (_, effects) => effects.map_err(String::into_bytes),
        };
        let effects = changes.as_deref().unwrap_or_default();
        let doubtful = self.keys.doubtful(effects);
        if !doubtful.is_empty() {
            return Next::Learn(doubtful, Trust::Quorum);
        }
        let effects = match changes {
            Ok(effects) => effects,
            Err(text) => return Next::Reply(Reply::Error(text)),
        };
        if let Program::Wait(_) = self.program
            && matches!(reply, Reply::Nil)
        {
            return Next::Wait;
        }
        if effects.is_empty() {
            return Next::Reply(reply);
        }
        (self.effects, self.reply) = (effects.into(), Some(reply));
        Next::Change
    }
}

impl Session {
    /// Begins an operation, whose reply comes later.
    pub(super) fn operate(
        &mut self,
        turn: &mut Turn<'_, '_>,
        program: Program,
        keys: Keys,
        first: First,
    ) -> Result<OperationId, ReplyError<'static>> {
        let command = self.reserve(turn)?;
        self.expect(Reserved::Bytes(Box::default()));
        Ok(self.operate_for(turn, command, program, keys, first))
    }

    /// Whether an operation comes first at all its keys. Operations of one connection on the same
    /// key take effect in the order of their commands.
    fn is_first(&self, operation: &Operation, id: OperationId) -> bool {
        operation.keys.keys.iter().all(|key| {
            let queue = self.key_queues.get(&key.name);
            queue.and_then(VecDeque::front).is_none_or(|first| *first == id)
        })
    }

    /// An operation has ended: those begin that waited for it.
    pub(in super::super) fn leave_keys(
        &mut self,
        turn: &mut Turn<'_, '_>,
        keys: &Keys,
        id: OperationId,
    ) {
        let mut next = Vec::new();
        for key in &keys.keys {
            let Some(queue) = self.key_queues.get_mut(&key.name) else { continue };
            queue.retain(|waiting| *waiting != id);
            match queue.front() {
                Some(first) => next.push(*first),
                None => _ = self.key_queues.remove(&key.name),
            }
        }
        for id in next {
            self.begin(turn, id);
        }
    }

    /// Begins an operation whose turn it is. If the steps of this turn are used up, the next one
    /// begins it.
    pub(in super::super) fn begin(&mut self, turn: &mut Turn<'_, '_>, id: OperationId) {
        let Some(operation) = turn.common.operations.get(id) else { return };
        if operation.tries > 0 || !self.is_first(operation, id) {
            return;
        }
        if turn.common.steps.are_spent() {
            return turn.common.deferred.push_back(Deferred::Operation(id));
        }
        self.advance(turn, id);
    }

    /// Begins an operation for a command whose reply is expected already.
    pub(super) fn operate_for(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: u64,
        program: Program,
        keys: Keys,
        first: First,
    ) -> OperationId {
        let operation = Operation {
            session: self.conn.index(),
            command,
            program,
            keys,
            first,
            phase: Phase::Learning(Trust::Hint),
            asked: Vec::new(),
            effects: VecDeque::new(),
            reply: None,
            failure: None,
            durable: None,
            grants: Vec::new(),
            tries: 0,
        };
        let cost = operation.cost();
        let id = turn.common.operations.0.insert(Some(Box::new(operation)));
        self.expect_instead(command, Reserved::Operation(id), cost);
        let Some(operation) = turn.common.operations.get(id) else { return id };
        for key in &operation.keys.keys {
            self.key_queues.entry(key.name.clone()).or_default().push_back(id);
        }
        self.begin(turn, id);
        id
    }

    /// Evaluates an operation that waits for nothing, and begins what follows.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_, '_>, id: OperationId) {
        let Some(mut operation) = turn.common.operations.take(id) else { return };
        if operation.first.assumes_free() && operation.tries == 0 {
            for place in operation.keys.unknown() {
                operation.keys.learn(place, None, Trust::Hint);
            }
        }
        let next = operation.evaluate(turn.shard.now(), &mut turn.common.steps);
        if matches!(next, Next::Change | Next::Reply(_))
            && let Err(error) = self.admit_published(turn, &operation.keys)
        {
            return self.finish(turn, id, operation, &denied(&error));
        }
        match next {
            Next::Learn(places, trust) => self.learn(turn, id, operation, &places, trust),
            Next::Change => self.change_next(turn, id, operation),
            Next::Wait => {
                operation.phase = Phase::Waiting;
                turn.common.operations.put_back(id, operation);
                self.begin_wait(turn, id);
            }
            Next::Reply(reply) => self.finish(turn, id, operation, &reply),
        }
    }

    /// Asks for keys: this node's own acceptor for a hint, or a quorum.
    fn learn(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        mut operation: Box<Operation>,
        places: &[usize],
        trust: Trust,
    ) {
        let verb = match operation.first {
            First::AskQuorum => Verb::Read,
            First::LookHere | First::AssumeFree | First::AcquireOrNil => Verb::Acquire,
        };
        // A script may read what its client may read or change. Its changes are admitted later.
        let is_script = matches!(operation.program, Program::Script { .. });
        for place in places {
            let name = &operation.keys.keys[*place].name;
            if is_script && turn.common.rules.allows(self.place(), Verb::Read, name) {
                continue;
            }
            if let Err(error) = self.admit_key(turn, verb, name) {
                return self.finish(turn, id, operation, &denied(&error));
            }
        }
        operation.phase = Phase::Learning(trust);
        for place in places {
            let owner = Owner::Operation { operation: id, place: *place };
            let request = PendingRequest { owner, ..PendingRequest::default() };
            let ask = turn.common.pending.insert(request);
            operation.asked.push(ask);
            let lease = name_of(&operation.keys, *place).into();
            let request = match trust {
                Trust::Hint => LeaseRequest::Peek { lease },
                Trust::Quorum | Trust::Applied => LeaseRequest::Inspect { lease },
            };
            turn.shard.ask(ask as u64, request);
        }
        turn.common.operations.put_back(id, operation);
    }

    /// Requests the next change, or replies if there is none.
    fn change_next(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        mut operation: Box<Operation>,
    ) {
        let Some((place, effect)) = operation.effects.pop_front() else {
            let reply = operation.reply.take().unwrap_or(Reply::Nil);
            return self.finish(turn, id, operation, &reply);
        };
        match self.change(turn, id, &operation, place, &effect) {
            Ok(ask) => {
                operation.asked.push(ask);
                operation.phase = Phase::Changing(effect);
                turn.common.operations.put_back(id, operation);
            }
            Err(error) => {
                roll_back(turn, &mut operation);
                self.finish(turn, id, operation, &denied(&error));
            }
        }
    }

    /// Requests one change, if the client may make it. This is the one place that permits a change.
    fn change(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        operation: &Operation,
        place: usize,
        effect: &Effect,
    ) -> Result<RequestId, ReplyError<'static>> {
        let name = name_of(&operation.keys, place);
        self.admit_key(turn, Verb::Acquire, name.as_str())?;
        let now = turn.shard.now();
        let owner = Owner::Operation { operation: id, place };
        let holder = |value| Holder::from_bytes(value).expect("the bound of values is the same");
        let mut pending = PendingRequest { owner, ..PendingRequest::default() };
        let entry;
        let request = match effect {
            Effect::Acquire { value, ends_at } => {
                let (ttl, lasts) = span(turn.common, *ends_at, now);
                pending.claim = self.claim(turn)?;
                pending.durable = lasts.map(DurableRequest::Acquire);
                pending.label = Some(Label::new(name, holder(value)));
                entry = (Event::Granted, None);
                let (wait, permits, is_retried) = (Duration::ZERO, None, false);
                let lease = (name, holder(value)).into();
                LeaseRequest::Acquire { lease, ttl, wait, permits, is_retried, lasts }
            }
            Effect::Release { fence, is_durable } | Effect::Replace { fence, is_durable, .. } => {
                turn.common.ended(name, *fence);
                entry = (Event::Released, Some(*fence));
                let (lease, fence, is_durable) = (name.into(), *fence, *is_durable);
                LeaseRequest::Release { lease, fence, is_durable }
            }
            Effect::SetEnd { fence, value, ends_at, is_longer } => {
                let (ttl, lasts) = span(turn.common, *ends_at, now);
                pending.renewal = self.renewal(turn.common, name, *fence);
                entry = (Event::Lost, Some(*fence));
                let lease = (name, holder(value)).into();
                match lasts {
                    None if *is_longer => LeaseRequest::Renew { lease, fence: *fence, ttl },
                    lasts => {
                        let lasts = lasts.or(Lasts::from_millis(ttl.as_millis() as u64));
                        let lasts = lasts.unwrap_or(Lasts::FOREVER);
                        pending.durable = Some(DurableRequest::Keep);
                        LeaseRequest::Keep { lease, fence: *fence, lasts }
                    }
                }
            }
        };
        if turn.common.audit.is_on() {
            let (event, fence) = entry;
            let entry = self.entry(turn.common, event, name, fence);
            let holder = pending.label.as_ref().map(|label| label.holder().to_string());
            pending.entry = Some(Box::new(Entry { holder, ..entry }));
        }
        let ask = turn.common.pending.insert(pending);
        turn.shard.ask(ask as u64, request);
        Ok(ask)
    }

    /// The answer to a request of an operation.
    pub(in super::super) fn operation_answered(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        place: usize,
        ask: RequestId,
        answer: Answer,
    ) {
        let Some(mut operation) = turn.common.operations.take(id) else { return };
        operation.asked.retain(|asked| *asked != ask);
        operation.durable = turn.common.pending.get(ask).durable;
        let is_grant = matches!(answer, Answer::Granted { .. });
        if !is_grant {
            turn.common.pending.remove(ask);
        }
        let phase = std::mem::replace(&mut operation.phase, Phase::Learning(Trust::Hint));
        match (phase, answer) {
            (Phase::Learning(trust), Answer::Inspected(seen)) => {
                let stored =
                    seen.map(|lease| Stored::of(&lease.seen, lease.durable, turn.shard.now()));
                operation.keys.learn(place, stored, trust);
                operation.phase = Phase::Learning(trust);
                self.learnt(turn, id, operation);
            }
            (Phase::Learning(trust), failure) => {
                operation.phase = Phase::Learning(trust);
                operation.failure = Some(failure);
                self.learnt(turn, id, operation);
            }
            (Phase::Changing(effect), answer) => {
                self.changed(turn, id, operation, (place, effect), ask, answer);
            }
            (Phase::Waiting, _) => turn.common.operations.put_back(id, operation),
        }
    }

    /// A key was learnt. Once all are, the operation goes on.
    fn learnt(&mut self, turn: &mut Turn<'_, '_>, id: OperationId, operation: Box<Operation>) {
        if !operation.asked.is_empty() {
            return turn.common.operations.put_back(id, operation);
        }
        match operation.failure.clone() {
            Some(failure) => self.fail(turn, id, operation, &failure),
            None => {
                turn.common.operations.put_back(id, operation);
                self.advance(turn, id);
            }
        }
    }

    /// A change was made, or found its tenure over or its key taken.
    fn changed(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        mut operation: Box<Operation>,
        (place, effect): (usize, Effect),
        ask: RequestId,
        answer: Answer,
    ) {
        match (effect, answer) {
            (Effect::Acquire { .. }, Answer::Granted { tenure, .. }) => {
                operation.grants.push((ask, tenure.fence(), place));
                operation.keys.applied(place);
                self.change_next(turn, id, operation);
            }
            (Effect::Acquire { value, .. }, Answer::Held(by)) => {
                let stored = Stored::of(&by, None, turn.shard.now());
                let granted_by = by.tenure.ballot().node();
                if stored.value == value
                    && granted_by
                        .is_some_and(|node| node.get() != turn.common.server.config.node.node)
                {
                    self.warn_of_redlock(turn, by.label.name());
                }
                roll_back(turn, &mut operation);
                if !operation.first.is_plain() {
                    // A denial tells neither the end of a durable lease nor, surely, its value.
                    operation.keys.forget(place);
                    return self.learn(turn, id, operation, &[place], Trust::Quorum);
                }
                operation.keys.learn(place, Some(stored), Trust::Quorum);
                turn.common.operations.put_back(id, operation);
                self.advance(turn, id);
            }
            (Effect::Replace { value, ends_at, .. }, Answer::Released { confirmed: true, .. }) => {
                operation.keys.learn(place, None, Trust::Hint);
                operation.effects.push_front((place, Effect::Acquire { value, ends_at }));
                self.change_next(turn, id, operation);
            }
            (Effect::Release { .. }, Answer::Released { held: Some(true), confirmed: true })
            | (Effect::SetEnd { .. }, Answer::Renewed { .. } | Answer::Kept { .. }) => {
                operation.keys.applied(place);
                self.change_next(turn, id, operation);
            }
            (Effect::Release { .. }, Answer::Released { held: Some(false), confirmed: true })
            | (Effect::SetEnd { .. }, Answer::NotHeld) => {
                // The tenure was over before: what the key is now decides anew.
                roll_back(turn, &mut operation);
                operation.keys.forget(place);
                self.learn(turn, id, operation, &[place], Trust::Quorum);
            }
            (_, failure) => self.fail(turn, id, operation, &failure),
        }
    }

    fn fail(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        mut operation: Box<Operation>,
        failure: &Answer,
    ) {
        roll_back(turn, &mut operation);
        let no_majority = turn.common.no_majority(turn.shard);
        let mut text = Vec::new();
        put_answer(failure, operation.durable, Protocol::Resp2, &no_majority, &mut text);
        // The text without the frame of an error.
        let text = text.strip_prefix(b"-").unwrap_or(&text).trim_ascii_end().to_vec();
        self.finish(turn, id, operation, &Reply::Error(text));
    }

    /// Replies.
    pub(super) fn finish(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: OperationId,
        operation: Box<Operation>,
        reply: &Reply,
    ) {
        turn.common.operations.remove(id);
        let Operation { command, mut keys, grants, program, .. } = *operation;
        if let Program::Wait(_) = program {
            turn.common.forget_wait(turn.shard, self.conn.index(), id);
        }
        for (channel, message) in &keys.published {
            if let (Ok(channel), Ok(message)) =
                (Name::from_bytes(channel), Holder::from_bytes(message))
                && !matches!(reply, Reply::Error(_))
            {
                turn.shard.note(channel, message);
            }
        }
        if let Some(denied) = keys.denied.take() {
            self.denied = Some(denied);
        }
        let is_array = matches!(program, Program::Wait(_));
        let grants = grants.into_iter().map(|(ask, fence, _)| (ask, fence)).collect();
        self.replied(turn, command, grants, |protocol, out| match reply {
            Reply::Nil if is_array => protocol.put_null_array(out),
            reply => put_reply(reply, protocol, out),
        });
        self.leave_keys(turn, &keys, id);
    }

    fn warn_of_redlock(&self, turn: &mut Turn<'_, '_>, name: Name<'_>) {
        if let Some(count) = turn.common.notices.again(turn.shard.now()) {
            let (client, name) = (&self.address, name.as_str());
            tracing::warn!(
                client,
                name,
                count,
                "clients sent a value for a key to two nodes of this cell; one cell is one master \
                 for Redlock, so give it one endpoint (docs/redis.md)"
            );
        }
    }
}

/// Gives back what the operation acquired, before it is evaluated again.
fn roll_back(turn: &mut Turn<'_, '_>, operation: &mut Operation) {
    for (ask, fence, place) in operation.grants.drain(..) {
        turn.common.pending.give_back(turn.shard, ask, fence);
        operation.keys.forget(place);
    }
    operation.effects.clear();
}

/// The client of an operation is gone: withdraws its requests, and gives back what it acquired.
/// Returns its keys.
pub(in super::super) fn abort(
    common: &mut Common,
    shard: &mut ShardHandle<'_>,
    id: OperationId,
) -> Option<Keys> {
    let operation = common.operations.take(id)?;
    common.operations.remove(id);
    for ask in operation.asked {
        common.pending.orphan(shard, ask);
    }
    for (ask, fence, _) in operation.grants {
        common.pending.give_back(shard, ask, fence);
    }
    if let Program::Wait(_) = operation.program {
        common.forget_wait(shard, operation.session, id);
    }
    Some(operation.keys)
}

/// How an acquire or a renewal asks for an end: by a ttl, or as a durable lease if that is longer
/// than the longest ttl.
fn span(common: &Common, ends_at: Instant, now: Instant) -> (Duration, Option<Lasts>) {
    let (longest, span) = (common.server.config.node.max_lease, ends_at.since(now));
    if span <= longest {
        return (span.max(LASTS_MIN), None);
    }
    (longest, Lasts::until(ends_at, now))
}

fn name_of(keys: &Keys, place: usize) -> Name<'_> {
    Name::new(&keys.keys[place].name).expect("checked when the key was added")
}

fn denied(error: &ReplyError<'_>) -> Reply {
    Reply::Error(error.to_string().into_bytes())
}

pub(super) fn put_reply(reply: &Reply, protocol: Protocol, out: &mut Vec<u8>) {
    match reply {
        Reply::Nil => protocol.put_null(out),
        Reply::Status(text) => put_simple(out, &String::from_utf8_lossy(text)),
        Reply::Integer(number) => put_integer(out, *number),
        Reply::Bulk(bytes) => put_bulk(out, bytes),
        Reply::Array(items) => {
            put_array(out, items.len());
            items.iter().for_each(|item| put_reply(item, protocol, out));
        }
        Reply::Error(text) => put_error(out, &String::from_utf8_lossy(text)),
    }
}
