//! One client's connection: the replies that it expects, in the order of its commands, and how much
//! of them it may leave unread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use paxoslease_node::front::{Answer, ConnId, Hint, LiveLease, Request};
use paxoslease_wire::resp::{Protocol, put_bulk, put_error, put_integer, put_simple};

use super::auth_state::AuthState;
use super::expected::{Expected, State};
use super::output::Output;
use super::pending::{Notify, Owner, PendingRequest, RequestId};
use super::redis::{self, Channel, KeyPage, LeaseChannel, OperationId, Operations};
use super::redis::{put_granted_message, put_timeout_message};
use super::reply::{
    put_answer, put_granted, put_hint, put_members_changed, put_missed, put_stopping, put_timeout,
    put_ttl, ttl_shown,
};
use super::reply_error::ReplyError;
use super::{Common, Turn};
use crate::config::{NamePattern, Verb};
use crate::durable::DurableRequest;
use crate::limits::RateLimiter;
use paxoslease_node::{AskError, Limit};

/// The requests of a client that leaves this much unread wait until it reads. The last reply before
/// that may have 64 KiB, as a page of a list or an echo, so at most 256 KiB are kept.
const UNREAD_MAX: usize = 192 * 1024;
/// Like [`UNREAD_MAX`], for a client without a valid token where one is required: its replies are
/// short, and an attacker can open as many such connections as the limit allows.
const UNREAD_UNAUTHENTICATED_MAX: usize = 16 * 1024;
/// A watcher that leaves this much unread misses messages.
const UNREAD_BY_WATCHER_MAX: usize = 64 * 1024;
/// Memory for more replies than this is freed once no reply is expected.
const EXPECTED_KEPT_MAX: usize = 128;

#[derive(Default)]
pub(super) struct Session {
    pub(super) conn: ConnId,
    /// The reply to `CLIENT ID`.
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    /// Set by the client, or empty.
    pub(super) name: String,
    /// The holder of its leases, unless a command says another: its name, or its address.
    pub(super) holder: String,
    pub(super) address: String,
    pub(super) output: Output,
    /// Replies that are not in `output` yet, in the order of their commands.
    expected: VecDeque<Expected>,
    /// The number of the command of the first of them.
    first: u64,
    /// The memory of those among them that are known, in bytes.
    kept: usize,
    /// Requests without an answer, including those that wait for a push.
    inflight: u32,
    /// Acquires with NOTIFY by their id. They are tried first, and then wait for a push.
    notifies: BTreeMap<Arc<[u8]>, RequestId>,
    pub(super) patterns: Vec<NamePattern>,
    /// Whether the client wants to know when the members change.
    pub(super) follows: bool,
    /// The number of the database that SELECT chose.
    pub(super) database: u8,
    /// The channels that the client subscribed to.
    pub(super) channels: Vec<Channel>,
    /// The same for leases.
    pub(super) lease_channels: Vec<LeaseChannel>,
    /// Operations of the Redis dialect by the names of their keys, in the order of their commands.
    pub(super) key_queues: BTreeMap<String, VecDeque<OperationId>>,
    /// The last key that the client tried to acquire in the Redis dialect, and did not get.
    pub(super) denied: Option<Vec<u8>>,
    /// MULTI was refused: so is every command until EXEC or DISCARD.
    pub(super) is_in_refused_multi: bool,
    pub(super) auth: AuthState,
    missed: u64,
    pub(super) rate_limiter: Option<RateLimiter>,
    /// A page of a list that is being made. The next command waits, because pages may be large.
    pub(super) listing: Option<RequestId>,
    is_held: bool,
    /// The client has closed its side. Commands that came before may not have been read yet.
    pub(super) is_ending: bool,
    /// No more commands are read, and the connection is closed once all replies are sent.
    pub(super) is_closing: bool,
    is_dirty: bool,
}

impl Session {
    pub(super) fn new(
        conn: ConnId,
        id: u64,
        address: String,
        rate_limiter: Option<RateLimiter>,
    ) -> Self {
        let holder = address.clone();
        Self { conn, id, holder, address, rate_limiter, ..Self::default() }
    }

    /// Has the session flushed when the turn ends.
    pub(super) fn touch(&mut self, common: &mut Common) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            common.dirty.push(self.conn.index());
        }
    }

    /// Replies to a command without a request.
    pub(super) fn reply(&mut self, common: &mut Common, put: impl FnOnce(Protocol, &mut Vec<u8>)) {
        if self.expected.is_empty() {
            put(self.protocol, &mut self.output.bytes);
        } else {
            common.scratch.clear();
            put(self.protocol, &mut common.scratch);
            let state = State::Bytes(common.scratch.as_slice().into());
            let mut expected = Expected::new(self.protocol, state);
            expected.count(&mut common.pending, &mut self.kept);
            self.expected.push_back(expected);
        }
        self.touch(common);
    }

    pub(super) fn reply_ok(&mut self, common: &mut Common) {
        self.reply(common, |_, out| put_simple(out, &"OK"));
    }

    pub(super) fn reply_error(&mut self, common: &mut Common, error: &ReplyError<'_>) {
        self.reply(common, |_, out| put_error(out, error));
    }

    /// Expects the reply to a command from a request. Returns the number for that request.
    pub(super) fn ask(
        &mut self,
        turn: &mut Turn<'_, '_>,
        label: Option<paxoslease_node::front::Label>,
        notify: Option<Box<Notify>>,
    ) -> Result<RequestId, ReplyError<'static>> {
        self.admit_one_more(turn)?;
        let id = notify.as_ref().map(|notify| Arc::clone(&notify.id));
        if id.as_ref().is_some_and(|id| self.notifies.contains_key(id)) {
            return Err(ReplyError::NotifyIdInUse);
        }
        self.inflight += 1;
        let command = self.next_command();
        let owner = Owner::Reply { session: self.conn.index(), command };
        let request = PendingRequest { owner, label, notify, ..PendingRequest::default() };
        let ask = turn.common.pending.insert(request);
        self.notifies.extend(id.map(|id| (id, ask)));
        self.expected.push_back(Expected::new(self.protocol, State::Pending(ask)));
        Ok(ask)
    }

    fn admit_one_more(&self, turn: &mut Turn<'_, '_>) -> Result<(), ReplyError<'static>> {
        let most = turn.common.server.config.limits.inflight_per_connection;
        if self.inflight < most {
            return Ok(());
        }
        turn.common.tally.limited(turn.shard.now(), Limit::InflightPerConnection, 1);
        Err(ReplyError::Inflight(most))
    }

    fn next_command(&self) -> u64 {
        self.first + self.expected.len() as u64
    }

    /// Makes room for the reply of an operation. Returns the number of its command.
    pub(super) fn reserve(&mut self, turn: &mut Turn<'_, '_>) -> Result<u64, ReplyError<'static>> {
        self.admit_one_more(turn)?;
        self.inflight += 1;
        Ok(self.next_command())
    }

    /// Expects the reply of an operation.
    pub(super) fn expect(&mut self, state: State) {
        self.expected.push_back(Expected::new(self.protocol, state));
    }

    /// The reply to a command will come from an operation instead of a request.
    pub(super) fn expect_instead(&mut self, command: u64, state: State, cost: usize) {
        if let Some(expected) = self.expected.get_mut((command - self.first) as usize) {
            expected.state = state;
            expected.count_as(cost, &mut self.kept);
        }
    }

    /// The reply of an operation is known. A client that leaves before it is sent has not got the
    /// leases in `grants`.
    pub(super) fn replied(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: u64,
        grants: Vec<(RequestId, u64)>,
        put: impl FnOnce(Protocol, &mut Vec<u8>),
    ) {
        self.inflight -= 1;
        let place = (command - self.first) as usize;
        let Some(expected) = self.expected.get_mut(place) else { return };
        turn.common.scratch.clear();
        put(expected.protocol, &mut turn.common.scratch);
        let bytes = turn.common.scratch.as_slice().into();
        let has_grants = !grants.is_empty();
        expected.state =
            if has_grants { State::Grants(bytes, grants) } else { State::Bytes(bytes) };
        expected.forget(&mut self.kept);
        self.settled(turn, place);
    }

    /// The answer to the request of a command.
    pub(super) fn answer(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: u64,
        ask: RequestId,
        answer: Answer,
    ) {
        let answer = match (answer, turn.common.pending.get(ask).keys.take()) {
            (Answer::Listed { leases, next }, Some(list)) => {
                return self.key_page(turn, command, ask, list, KeyPage { leases, next });
            }
            (answer, _) => answer,
        };
        self.inflight -= 1;
        if let Some(notify) = &turn.common.pending.get(ask).notify {
            self.notifies.remove(&notify.id);
        }
        self.end_listing(turn, ask);
        let viewer = self.place();
        let place = (command - self.first) as usize;
        let Some(expected) = self.expected.get_mut(place) else { return };
        expected.state = match answer {
            // A page may be large, so its bytes are counted while replies before it are missing.
            // The rules may have changed since it was asked for.
            Answer::Listed { leases, next } => {
                let may_see = |name: &str| turn.common.rules.allows(viewer, Verb::Read, name);
                let shown = |seen: &LiveLease| may_see(seen.label.name().as_str());
                let leases = leases.into_iter().filter(shown).collect();
                turn.common.pending.remove(ask);
                turn.common.scratch.clear();
                let page = Answer::Listed { leases, next };
                let no_majority = &AskError::NO_MAJORITY;
                put_answer(&page, None, expected.protocol, no_majority, &mut turn.common.scratch);
                State::Bytes(turn.common.scratch.as_slice().into())
            }
            answer => State::Answered(ask, answer),
        };
        self.settled(turn, place);
    }

    /// If this request made a page of a list, the next command may be read.
    pub(super) fn end_listing(&mut self, turn: &mut Turn<'_, '_>, ask: RequestId) {
        if self.listing == Some(ask) {
            self.listing = None;
            self.touch(turn.common);
        }
    }

    /// An acquire with NOTIFY was tried and must wait: that is its reply, and a push follows.
    pub(super) fn queue(&mut self, turn: &mut Turn<'_, '_>, command: u64, ask: RequestId) {
        let place = (command - self.first) as usize;
        if let Some(expected) = self.expected.get_mut(place) {
            expected.state = State::Bytes((*b"+QUEUED\r\n").into());
            self.settled(turn, place);
        }
        let PendingRequest { owner, label, notify, durable, .. } = turn.common.pending.get(ask);
        let lasts = durable.and_then(DurableRequest::acquired);
        *owner = Owner::Push { session: self.conn.index() };
        if let (Some(label), Some(notify)) = (label, notify) {
            let now = turn.shard.now();
            notify.waited = now.since(notify.asked_at);
            let wait = notify.patient_until.since(now);
            let (lease, ttl) = ((label.name(), label.holder()).into(), notify.ttl);
            let (permits, is_retried) = (notify.permits, false);
            let request = Request::Acquire { lease, ttl, wait, permits, is_retried, lasts };
            turn.shard.ask(ask as u64, request);
        }
    }

    /// The expected reply at this place is known. The first one is due, and so are those behind it
    /// that are known: moves them to the output.
    pub(super) fn settled(&mut self, turn: &mut Turn<'_, '_>, place: usize) {
        if place > 0 {
            return self.expected[place].count(&mut turn.common.pending, &mut self.kept);
        }
        let is_due = |expected: &mut Expected| {
            !matches!(expected.state, State::Pending(_) | State::Operation(_))
        };
        while let Some(mut expected) = self.expected.pop_front_if(is_due) {
            expected.forget(&mut self.kept);
            let Expected { protocol, state, .. } = expected;
            let out = &mut self.output.bytes;
            match state {
                State::Pending(_) | State::Operation(_) => {
                    unreachable!("a pending reply is not due")
                }
                State::Bytes(bytes) => out.extend_from_slice(&bytes),
                State::Grants(bytes, grants) => {
                    out.extend_from_slice(&bytes);
                    for (ask, fence) in grants {
                        self.output.granted(ask, fence);
                    }
                }
                State::Answered(ask, answer) => {
                    let no_majority = match answer {
                        Answer::NoQuorum => turn.common.no_majority(turn.shard),
                        _ => AskError::NO_MAJORITY,
                    };
                    match &answer {
                        Answer::Inspected(seen) if turn.common.pending.get(ask).only_ttl => {
                            put_ttl(seen.as_deref(), out);
                        }
                        answer => {
                            let durable = turn.common.pending.get(ask).durable;
                            put_answer(answer, durable, protocol, &no_majority, out);
                        }
                    }
                    if let Answer::Granted { permit: Some(_), .. } = answer
                        && let Some(label) = &turn.common.pending.get(ask).label
                    {
                        put_bulk(out, label.name().as_bytes());
                    }
                    match answer {
                        Answer::Granted { tenure, .. } => self.output.granted(ask, tenure.fence()),
                        _ => turn.common.pending.remove(ask),
                    }
                }
            }
            self.first += 1;
        }
        if self.expected.is_empty() && self.expected.capacity() > EXPECTED_KEPT_MAX {
            self.expected.shrink_to(EXPECTED_KEPT_MAX);
        }
        self.touch(turn.common);
    }

    /// The answer to an acquire that waited for a push.
    pub(super) fn notified(&mut self, common: &mut Common, ask: RequestId, answer: &Answer) {
        self.inflight -= 1;
        let by_channel = self.is_notified_by_channel();
        let out = &mut self.output.bytes;
        let PendingRequest { notify, label, durable, .. } = common.pending.get(ask);
        if let Some(notify) = notify {
            self.notifies.remove(&notify.id);
            match *answer {
                Answer::Granted { tenure, ttl, waited, permit, .. } => {
                    let (fence, waited) = (tenure.fence(), waited + notify.waited);
                    let ttl = ttl_shown(ttl, durable.and_then(DurableRequest::acquired));
                    if by_channel {
                        put_granted_message(&notify.id, fence, label.as_ref(), ttl, waited, out);
                    } else {
                        let permit = permit.and(label.as_ref());
                        put_granted(&notify.id, fence, permit, ttl, waited, self.protocol, out);
                    }
                    self.output.granted(ask, fence);
                    return self.touch(common);
                }
                // The node stops, and the connection ends.
                Answer::Abandoned | Answer::Stopping => {}
                _ if by_channel => put_timeout_message(&notify.id, out),
                _ => put_timeout(&notify.id, self.protocol, out),
            }
        }
        common.pending.remove(ask);
        self.touch(common);
    }

    /// Whether it has left so much unread that it misses messages.
    pub(super) fn is_slow_watcher(&self) -> bool {
        self.unread() > UNREAD_BY_WATCHER_MAX
    }

    /// Whether it misses a hint now, which is counted.
    pub(super) fn misses(&mut self) -> bool {
        let misses = self.is_slow_watcher() || self.missed > 0;
        self.missed += u64::from(misses);
        misses
    }

    pub(super) fn hint(&mut self, turn: &mut Turn<'_, '_>, hint: &Hint) {
        if self.misses() {
            turn.common.tally.limited(turn.shard.now(), Limit::Watch, 1);
        } else {
            put_hint(hint, self.protocol, &mut self.output.bytes);
            self.touch(turn.common);
        }
    }

    /// Tells a client that follows the members that they have changed.
    pub(super) fn members_changed(&mut self, common: &mut Common, epoch: u32) {
        if self.follows {
            put_members_changed(epoch, self.protocol, &mut self.output.bytes);
            self.touch(common);
        }
    }

    pub(super) fn is_notifying(&self) -> bool {
        !self.notifies.is_empty()
    }

    /// Whether it expects more replies, or has left more unread, than it may.
    pub(super) fn is_full(&self, common: &Common) -> bool {
        let most = common.server.config.limits.inflight_per_connection as usize * 2;
        self.unread() > self.unread_max(common) || self.expected.len() >= most
    }

    /// Whether its commands may be read again, after that.
    fn has_room(&self, common: &Common) -> bool {
        let most = common.server.config.limits.inflight_per_connection as usize;
        let few = self.expected.len() < most.max(2);
        few && self.unread() <= self.unread_max(common) / 2 && self.listing.is_none()
    }

    fn unread_max(&self, common: &Common) -> usize {
        if self.is_unauthenticated(common) { UNREAD_UNAUTHENTICATED_MAX } else { UNREAD_MAX }
    }

    fn unread(&self) -> usize {
        self.output.pending() + self.kept
    }

    /// Stops reading commands for now. P8: while an acquire waits, the connection is read ahead, so
    /// that its end is noticed. Otherwise a failed send is early enough.
    pub(super) fn hold(&mut self, turn: &mut Turn<'_, '_>) {
        self.is_held = true;
        let waits = |expected: &Expected| match expected.state {
            State::Pending(ask) => turn.common.pending.get(ask).waits,
            State::Operation(id) => turn.common.operations.waits(id),
            _ => false,
        };
        let read_ahead = self.expected.iter().any(waits);
        turn.shard.sockets.hold(self.conn, read_ahead);
    }

    /// Sends as much as the connection takes. Returns whether the session goes on.
    pub(super) fn flush(&mut self, turn: &mut Turn<'_, '_>) -> bool {
        loop {
            if self.output.pending() > 0 {
                let taken = turn.shard.sockets.send(self.conn, self.output.unsent());
                let Common { pending, audit, .. } = &mut *turn.common;
                self.output.taken(taken, turn.shard.now(), pending, audit);
            }
            if self.missed == 0 || self.output.pending() >= UNREAD_BY_WATCHER_MAX / 2 {
                break;
            }
            let missed = std::mem::take(&mut self.missed);
            if !self.missed_by_channel(turn, missed) {
                put_missed(missed, self.protocol, &mut self.output.bytes);
            }
        }
        // Only now: a message about missed hints marks the session again, and the loop has sent it.
        self.is_dirty = false;
        if self.is_held && !self.is_closing && self.has_room(turn.common) {
            self.is_held = false;
            turn.shard.sockets.resume(self.conn);
        }
        !self.is_closing || !self.expected.is_empty() || self.output.pending() > 0
    }

    /// The node stops: withdraws all requests, tells the client, and closes. Requests under way may
    /// or may not take effect; the client can ask another node.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_, '_>) {
        turn.common.scratch.clear();
        put_stopping(&mut turn.common.scratch);
        self.withdraw(turn, |_| true);
        self.withdraw_operations(turn, |_, _| true);
        self.is_closing = true;
        self.settled(turn, 0);
    }

    /// The client has closed its side, and may be gone. P8: nothing is acquired for it any more,
    /// and a grant that was not sent is given back. Its other commands are answered, in case it
    /// still reads, and then the connection is closed.
    pub(super) fn input_ends(&mut self, turn: &mut Turn<'_, '_>) {
        self.is_ending = true;
        turn.common.scratch.clear();
        put_error(&mut turn.common.scratch, &ReplyError::Ended);
        self.withdraw(turn, |ask| ask.label.is_some());
        self.withdraw_operations(turn, Operations::waits_or_acquires);
        for expected in &mut self.expected {
            match &expected.state {
                State::Answered(ask, Answer::Granted { tenure, .. }) => {
                    turn.common.pending.give_back(turn.shard, *ask, tenure.fence());
                }
                State::Grants(_, grants) => {
                    for (ask, fence) in grants {
                        turn.common.pending.give_back(turn.shard, *ask, *fence);
                    }
                }
                _ => continue,
            }
            expected.state = State::Bytes(turn.common.scratch.as_slice().into());
            expected.count(&mut turn.common.pending, &mut self.kept);
        }
        self.settled(turn, 0);
    }

    /// The client has sent so much that its end would not be noticed. P8: its acquires stop
    /// waiting, so that its commands are read again.
    pub(super) fn read_ahead_full(&mut self, turn: &mut Turn<'_, '_>) {
        turn.common.tally.limited(turn.shard.now(), Limit::OutOfSight, 1);
        turn.common.scratch.clear();
        put_error(&mut turn.common.scratch, &ReplyError::ReadAheadFull);
        self.withdraw_replies(turn, |ask| ask.waits);
        self.withdraw_operations(turn, Operations::waits);
        self.settled(turn, 0);
    }

    /// Withdraws acquires that wait for a push, and the requests that `which` selects. The reply to
    /// those is in the scratch.
    fn withdraw(&mut self, turn: &mut Turn<'_, '_>, which: fn(&PendingRequest) -> bool) {
        self.withdraw_notifies(turn, |_| true);
        // Those that are left are still tried.
        self.notifies.clear();
        self.withdraw_replies(turn, which);
    }

    /// Withdraws the operations of the Redis dialect that `which` selects. The reply to those is in
    /// the scratch.
    pub(super) fn withdraw_operations(
        &mut self,
        turn: &mut Turn<'_, '_>,
        which: impl Fn(&Operations, OperationId) -> bool,
    ) {
        let mut left = Vec::new();
        for expected in &mut self.expected {
            if let State::Operation(id) = expected.state
                && which(&turn.common.operations, id)
            {
                left.extend(redis::abort(turn.common, turn.shard, id).map(|keys| (id, keys)));
                self.inflight -= 1;
                expected.state = State::Bytes(turn.common.scratch.as_slice().into());
                expected.count(&mut turn.common.pending, &mut self.kept);
            }
        }
        for (id, keys) in left {
            self.leave_keys(turn, &keys, id);
        }
    }

    /// Withdraws requests that a command waits for. The reply to those is in the scratch.
    pub(super) fn withdraw_replies(
        &mut self,
        turn: &mut Turn<'_, '_>,
        which: impl Fn(&PendingRequest) -> bool,
    ) {
        for expected in &mut self.expected {
            if let State::Pending(ask) = expected.state
                && which(turn.common.pending.get(ask))
            {
                turn.common.pending.orphan(turn.shard, ask);
                self.inflight -= 1;
                expected.state = State::Bytes(turn.common.scratch.as_slice().into());
                expected.count(&mut turn.common.pending, &mut self.kept);
            }
        }
    }

    /// Withdraws the acquire that waits under this id, and replies whether there was one. A push
    /// about it comes before this reply, or never. An acquire that is still tried does not begin to
    /// wait: its own reply, which also comes before this one, says how it went.
    pub(super) fn cancel(&mut self, turn: &mut Turn<'_, '_>, id: &[u8]) {
        let found = self.notifies.get(id).copied();
        let waited = found.is_some_and(|ask| turn.common.pending.take_back(turn.shard, ask));
        if waited {
            self.notifies.remove(id);
            self.inflight -= 1;
        }
        self.reply(turn.common, |_, out| put_integer(out, i64::from(waited)));
    }

    /// Reads no more commands. Nothing follows the last reply, as clients expect.
    pub(super) fn hang_up(&mut self, turn: &mut Turn<'_, '_>) {
        self.stop_pushes(turn);
        self.is_closing = true;
    }

    /// Sends no more pushes.
    pub(super) fn stop_pushes(&mut self, turn: &mut Turn<'_, '_>) {
        self.withdraw_notifies(turn, |_| true);
        self.missed = 0;
        turn.common.watches(turn.shard, self.conn, self.watched(), 0);
        self.patterns.clear();
        self.lease_channels.clear();
        let channels = std::mem::take(&mut self.channels);
        turn.common.subscribes(turn.shard, self.conn, channels.len(), 0);
    }

    /// Withdraws acquires with NOTIFY that `which` selects. Returns the ids of those that waited
    /// for a push. The others are still tried: they do not begin to wait, and get their replies.
    pub(super) fn withdraw_notifies(
        &mut self,
        turn: &mut Turn<'_, '_>,
        which: impl Fn(&PendingRequest) -> bool,
    ) -> Vec<Arc<[u8]>> {
        let pending = &mut turn.common.pending;
        let withdraw = |_: &Arc<[u8]>, ask: &mut RequestId| {
            which(pending.get(*ask)) && pending.take_back(turn.shard, *ask)
        };
        let withdrawn: Vec<_> = self.notifies.extract_if(.., withdraw).map(|(id, _)| id).collect();
        self.inflight -= withdrawn.len() as u32;
        withdrawn
    }

    /// The client is gone. P8: withdraws its requests, and gives back grants that were not sent.
    pub(super) fn end(mut self, turn: &mut Turn<'_, '_>) {
        self.withdraw_notifies(turn, |_| true);
        for Expected { state, .. } in self.expected {
            match state {
                State::Pending(ask) => turn.common.pending.orphan(turn.shard, ask),
                State::Operation(id) => drop(redis::abort(turn.common, turn.shard, id)),
                State::Grants(_, grants) => {
                    for (ask, fence) in grants {
                        turn.common.pending.give_back(turn.shard, ask, fence);
                    }
                }
                State::Answered(ask, Answer::Granted { tenure, .. }) => {
                    turn.common.pending.give_back(turn.shard, ask, tenure.fence());
                }
                State::Answered(ask, _) => turn.common.pending.remove(ask),
                State::Bytes(_) => {}
            }
        }
        for (ask, fence) in self.output.unsent_grants() {
            turn.common.pending.give_back(turn.shard, ask, fence);
        }
    }
}
