//! One client's connection: what it is still to hear, in the order it asked, and how much of that
//! it may leave unread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use paxoslease_node::front::{Answer, ConnId, Desk, Hint, Sighting};
use paxoslease_wire::resp::{Protocol, put_error, put_integer, put_simple};

use super::Common;
use super::asks::{Ask, AskId, Notify, Owner};
use super::complaint::Complaint;
use super::expected::{Expected, State};
use super::output::Output;
use super::reply::{put_answer, put_granted, put_hint, put_missed, put_stopping, put_timeout};
use super::standing::Standing;
use crate::config::{NamePattern, Verb};
use crate::limits::{Limit, RateLimiter};

/// A client that leaves this much unread is not listened to until it reads. The reply that brings
/// it there may have 64 KiB, a page of a list or an echo: so 256 KiB are kept at the most.
const UNREAD_MAX: usize = 192 * 1024;
/// As [`UNREAD_MAX`], for one without a good token where one is asked for: all it can ask for is
/// short, and anybody can be as many of these as there are connections.
const UNREAD_BY_STRANGER_MAX: usize = 16 * 1024;
/// A watcher that leaves this much unread misses messages.
const UNREAD_BY_WATCHER_MAX: usize = 64 * 1024;
/// Room for more replies than this is not kept once none is expected.
const EXPECTED_KEPT_MAX: usize = 128;

pub(super) struct Session {
    pub(super) conn: ConnId,
    /// As `CLIENT ID` and `HELLO` say.
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    /// What it calls itself.
    pub(super) name: String,
    /// Who holds what it acquires, unless it says: its name, or where it is connected from.
    pub(super) holder: String,
    pub(super) address: String,
    pub(super) output: Output,
    /// Replies in the order of their commands; those before are in `output`.
    expected: VecDeque<Expected>,
    /// The number of the first of them.
    first: u64,
    /// What those among them cost that are known already.
    kept: usize,
    /// Questions under way, those that wait for a push included.
    inflight: u32,
    /// Acquires with NOTIFY by their id, whether they are tried still or wait for a push.
    notifies: BTreeMap<Arc<[u8]>, AskId>,
    pub(super) patterns: Vec<NamePattern>,
    pub(super) standing: Standing,
    missed: u64,
    pub(super) pace: Option<RateLimiter>,
    /// A page of a list is being made: the next command waits, as pages may be large.
    pub(super) listing: Option<AskId>,
    is_held: bool,
    /// It will say no more, beyond what it said while it was held.
    pub(super) is_ending: bool,
    /// Nothing more is read, and once everything is told, the connection is closed.
    pub(super) is_closing: bool,
    is_dirty: bool,
}

impl Session {
    pub(super) fn new(conn: ConnId, id: u64, address: String, pace: Option<RateLimiter>) -> Self {
        Self {
            conn,
            id,
            protocol: Protocol::default(),
            name: String::new(),
            holder: address.clone(),
            address,
            output: Output::default(),
            expected: VecDeque::new(),
            first: 0,
            kept: 0,
            inflight: 0,
            notifies: BTreeMap::new(),
            patterns: Vec::new(),
            standing: Standing::default(),
            missed: 0,
            pace,
            listing: None,
            is_held: false,
            is_ending: false,
            is_closing: false,
            is_dirty: false,
        }
    }

    /// There is something to send, or to look after, when the turn ends.
    pub(super) fn touch(&mut self, common: &mut Common) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            common.dirty.push(self.conn.index());
        }
    }

    /// A reply that is known at once.
    pub(super) fn reply(&mut self, common: &mut Common, put: impl FnOnce(Protocol, &mut Vec<u8>)) {
        if self.expected.is_empty() {
            put(self.protocol, &mut self.output.bytes);
        } else {
            common.scratch.clear();
            put(self.protocol, &mut common.scratch);
            let state = State::Bytes(common.scratch.as_slice().into());
            let mut expected = Expected::new(self.protocol, state);
            expected.count(&mut common.asks, &mut self.kept);
            self.expected.push_back(expected);
        }
        self.touch(common);
    }

    pub(super) fn complain(&mut self, common: &mut Common, complaint: &Complaint<'_>) {
        self.reply(common, |_, out| put_error(out, complaint));
    }

    /// A reply that has to be asked for, under the number this gives.
    pub(super) fn ask(
        &mut self,
        common: &mut Common,
        desk: &Desk<'_>,
        label: Option<paxoslease_node::front::Label>,
        notify: Option<Box<Notify>>,
    ) -> Result<AskId, Complaint<'static>> {
        let most = common.house.limits.inflight_per_connection;
        if self.inflight >= most {
            common.tally.limited(desk.now(), Limit::InflightPerConnection, 1);
            return Err(Complaint::Inflight(most));
        }
        let id = notify.as_ref().map(|notify| Arc::clone(&notify.id));
        if id.as_ref().is_some_and(|id| self.notifies.contains_key(id)) {
            return Err(Complaint::NotifyIdInUse);
        }
        self.inflight += 1;
        let command = self.first + self.expected.len() as u64;
        let owner = Owner::Reply { session: self.conn.index(), command };
        let ask = common.asks.insert(Ask { owner, label, waits: false, notify, claim: None });
        self.notifies.extend(id.map(|id| (id, ask)));
        self.expected.push_back(Expected::new(self.protocol, State::Pending(ask)));
        Ok(ask)
    }

    /// The answer to what was asked for a command.
    pub(super) fn answer(
        &mut self,
        common: &mut Common,
        desk: &Desk<'_>,
        (command, ask): (u64, AskId),
        answer: Answer,
    ) {
        self.inflight -= 1;
        if let Some(notify) = &common.asks.get(ask).notify {
            self.notifies.remove(&notify.id);
        }
        if self.listing == Some(ask) {
            self.listing = None;
            self.touch(common);
        }
        let state = match answer {
            // A page may be large, so its bytes are counted while it waits for its turn. The rules
            // may have changed since it was asked for.
            Answer::Listed { leases, next } => {
                let may_see = |name: &str| common.rules.allows(self.place(), Verb::Read, name);
                let shown = |seen: &Sighting| may_see(seen.label.name().as_str());
                let leases = leases.into_iter().filter(shown).collect();
                let answer = Answer::Listed { leases, next };
                let expected = self.expected.get((command - self.first) as usize);
                let protocol = expected.map_or(self.protocol, |expected| expected.protocol);
                common.asks.remove(ask);
                common.scratch.clear();
                put_answer(&answer, protocol, Duration::ZERO, &mut common.scratch);
                State::Bytes(common.scratch.as_slice().into())
            }
            answer => State::Answered(ask, answer),
        };
        self.settle(common, desk, command, state);
    }

    /// A tried acquire must wait: that is its reply, and the rest will be a push.
    pub(super) fn queue(
        &mut self,
        common: &mut Common,
        desk: &mut Desk<'_>,
        (command, ask): (u64, AskId),
    ) {
        let queued = State::Bytes((*b"+QUEUED\r\n").into());
        self.settle(common, desk, command, queued);
        let Ask { owner, label, notify, .. } = common.asks.get(ask);
        *owner = Owner::Push { session: self.conn.index() };
        if let (Some(label), Some(notify)) = (label, notify) {
            let now = desk.now();
            notify.waited = now.since(notify.asked_at);
            let wait = notify.patient_until.since(now);
            desk.acquire(ask as u64, label.name(), label.holder(), notify.ttl, wait);
        }
    }

    fn settle(&mut self, common: &mut Common, desk: &Desk<'_>, command: u64, state: State) {
        let place = (command - self.first) as usize;
        let Some(expected) = self.expected.get_mut(place) else { return };
        expected.state = state;
        if place == 0 {
            self.catch_up(common, desk);
        } else {
            expected.count(&mut common.asks, &mut self.kept);
        }
    }

    /// Moves replies that are due from those expected to those on their way.
    fn catch_up(&mut self, common: &mut Common, desk: &Desk<'_>) {
        let is_due = |expected: &mut Expected| !matches!(expected.state, State::Pending(_));
        while let Some(mut expected) = self.expected.pop_front_if(is_due) {
            expected.forget(&mut self.kept);
            let Expected { protocol, state, .. } = expected;
            let out = &mut self.output.bytes;
            match state {
                State::Pending(_) => unreachable!("what is pending is not due"),
                State::Bytes(bytes) => out.extend_from_slice(&bytes),
                State::Answered(ask, answer) => {
                    let quarantine = match answer {
                        Answer::NoQuorum => common.quarantine(desk),
                        _ => Duration::ZERO,
                    };
                    put_answer(&answer, protocol, quarantine, out);
                    match answer {
                        Answer::Granted { fence, .. } => self.output.granted(ask, fence),
                        _ => common.asks.remove(ask),
                    }
                }
            }
            self.first += 1;
        }
        if self.expected.is_empty() && self.expected.capacity() > EXPECTED_KEPT_MAX {
            self.expected.shrink_to(EXPECTED_KEPT_MAX);
        }
        self.touch(common);
    }

    /// What became of an acquire that waited for a push.
    pub(super) fn notified(&mut self, common: &mut Common, ask: AskId, answer: &Answer) {
        self.inflight -= 1;
        let out = &mut self.output.bytes;
        if let Some(notify) = &common.asks.get(ask).notify {
            self.notifies.remove(&notify.id);
            match *answer {
                Answer::Granted { fence, ttl, waited } => {
                    let waited = waited + notify.waited;
                    put_granted((&notify.id, fence), ttl, waited, self.protocol, out);
                    self.output.granted(ask, fence);
                    return self.touch(common);
                }
                // The node stops, and the connection ends.
                Answer::Abandoned | Answer::Stopping => {}
                _ => put_timeout(&notify.id, self.protocol, out),
            }
        }
        common.asks.remove(ask);
        self.touch(common);
    }

    pub(super) fn hint(&mut self, common: &mut Common, desk: &Desk<'_>, hint: &Hint) {
        if self.output.pending() > UNREAD_BY_WATCHER_MAX || self.missed > 0 {
            self.missed += 1;
            common.tally.limited(desk.now(), Limit::Watch, 1);
        } else {
            put_hint(hint, self.protocol, &mut self.output.bytes);
            self.touch(common);
        }
    }

    pub(super) fn is_notifying(&self) -> bool {
        !self.notifies.is_empty()
    }

    /// Whether it has asked more, or left more unread, than it may.
    pub(super) fn is_full(&self, common: &Common) -> bool {
        let most = common.house.limits.inflight_per_connection as usize * 2;
        self.unread() > self.unread_max(common) || self.expected.len() >= most
    }

    /// Whether it may ask again, after that.
    fn has_room(&self, common: &Common) -> bool {
        let most = common.house.limits.inflight_per_connection as usize;
        let few = self.expected.len() < most.max(2);
        few && self.unread() <= self.unread_max(common) / 2 && self.listing.is_none()
    }

    fn unread_max(&self, common: &Common) -> usize {
        if self.is_stranger(common) { UNREAD_BY_STRANGER_MAX } else { UNREAD_MAX }
    }

    fn unread(&self) -> usize {
        self.output.pending() + self.kept
    }

    /// Is shown nothing more for now. P8: one with an acquire that waits stays in sight. Others
    /// need not: whatever is told to one that left comes back.
    pub(super) fn hold(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        self.is_held = true;
        let waits = |expected: &Expected| match expected.state {
            State::Pending(ask) => common.asks.get(ask).waits,
            _ => false,
        };
        if self.expected.iter().any(waits) {
            desk.hold_in_sight(self.conn);
        } else {
            desk.hold(self.conn);
        }
    }

    /// Sends what there is. Says whether the session goes on.
    pub(super) fn flush(&mut self, common: &mut Common, desk: &mut Desk<'_>) -> bool {
        self.is_dirty = false;
        self.output.send(desk, self.conn, &mut common.asks);
        if self.missed > 0 && self.output.pending() < UNREAD_BY_WATCHER_MAX / 2 {
            let missed = std::mem::take(&mut self.missed);
            put_missed(missed, self.protocol, &mut self.output.bytes);
            self.output.send(desk, self.conn, &mut common.asks);
        }
        if self.is_held && !self.is_closing && self.has_room(common) {
            self.is_held = false;
            desk.resume(self.conn);
        }
        !self.is_closing || !self.expected.is_empty() || self.output.pending() > 0
    }

    /// The node stops: takes back what waits, says so, and closes. What is under way may or may not
    /// come about; another node will tell.
    pub(super) fn leave(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        common.scratch.clear();
        put_stopping(&mut common.scratch);
        self.give_up(common, desk, |_| true);
        self.is_closing = true;
        self.catch_up(common, desk);
    }

    /// The client says no more, and maybe is gone. P8: nothing is acquired for it any more, and a
    /// grant that waits for its turn is given back. What else it asked for is answered, in case it
    /// still listens, and then the connection is closed.
    pub(super) fn input_ends(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        self.is_ending = true;
        common.scratch.clear();
        put_error(&mut common.scratch, &Complaint::Ended);
        self.give_up(common, desk, |ask| ask.label.is_some());
        for expected in &mut self.expected {
            if let State::Answered(ask, Answer::Granted { fence, .. }) = expected.state {
                common.asks.give_back(desk, ask, fence);
                expected.state = State::Bytes(common.scratch.as_slice().into());
                expected.count(&mut common.asks, &mut self.kept);
            }
        }
        self.catch_up(common, desk);
    }

    /// It says too much to be seen leaving. P8: it does not go on waiting, and so is listened to
    /// again before long.
    pub(super) fn out_of_sight(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        common.tally.limited(desk.now(), Limit::OutOfSight, 1);
        common.scratch.clear();
        put_error(&mut common.scratch, &Complaint::OutOfSight);
        self.give_up_replies(common, desk, |ask| ask.waits);
        self.catch_up(common, desk);
    }

    /// Takes back what waits for a push, and those questions under way: what is in the scratch is
    /// the reply to them.
    fn give_up(&mut self, common: &mut Common, desk: &mut Desk<'_>, which: fn(&Ask) -> bool) {
        self.forget_notifies(common, desk);
        // Those that are left are acquires that are only tried still.
        self.notifies.clear();
        self.give_up_replies(common, desk, which);
    }

    fn give_up_replies(
        &mut self,
        common: &mut Common,
        desk: &mut Desk<'_>,
        which: impl Fn(&Ask) -> bool,
    ) {
        for expected in &mut self.expected {
            if let State::Pending(ask) = expected.state
                && which(common.asks.get(ask))
            {
                common.asks.orphan(desk, ask);
                self.inflight -= 1;
                expected.state = State::Bytes(common.scratch.as_slice().into());
                expected.count(&mut common.asks, &mut self.kept);
            }
        }
    }

    /// Takes back the acquire that waits under this id, and replies whether there was one. A push
    /// that tells of it is before this reply, or never comes. One that is tried still is not made
    /// to wait: its own reply, which is before this one too, says how it went.
    pub(super) fn cancel(&mut self, common: &mut Common, desk: &mut Desk<'_>, id: &[u8]) {
        let found = self.notifies.get(id).copied();
        let waited = found.is_some_and(|ask| common.asks.take_back(desk, ask));
        if waited {
            self.notifies.remove(id);
            self.inflight -= 1;
        }
        self.reply(common, |_, out| put_integer(out, i64::from(waited)));
    }

    /// Nothing more is read of it, and nothing follows the reply that says so, as clients expect.
    pub(super) fn hang_up(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        self.stop_pushes(common, desk);
        self.is_closing = true;
    }

    /// It hears nothing more but replies.
    pub(super) fn stop_pushes(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        self.forget_notifies(common, desk);
        self.missed = 0;
        let patterns = std::mem::take(&mut self.patterns);
        common.watches(desk, self.conn, patterns.len(), 0);
    }

    /// Takes back acquires of such names that wait for a push or are tried still. Says which of
    /// them nothing more will be heard of.
    pub(super) fn take_back_notifies(
        &mut self,
        common: &mut Common,
        desk: &mut Desk<'_>,
        which: impl Fn(&str) -> bool,
    ) -> Vec<Arc<[u8]>> {
        let mut over = Vec::new();
        self.notifies.retain(|id, ask| {
            if !common.asks.get(*ask).is_for(&which) {
                return true;
            }
            if common.asks.take_back(desk, *ask) {
                over.push(Arc::clone(id));
            }
            false
        });
        self.inflight -= over.len() as u32;
        over
    }

    /// Takes back acquires of such names: what is in the scratch is the reply to them.
    pub(super) fn take_back_acquires(
        &mut self,
        common: &mut Common,
        desk: &mut Desk<'_>,
        which: impl Fn(&str) -> bool,
    ) {
        self.give_up_replies(common, desk, |ask| ask.is_for(&which));
        self.catch_up(common, desk);
    }

    fn forget_notifies(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        let before = self.notifies.len();
        self.notifies.retain(|_, ask| !common.asks.take_back(desk, *ask));
        self.inflight -= (before - self.notifies.len()) as u32;
    }

    /// The client is gone. P8: what it waits for is taken back, what was granted and never left is
    /// given back.
    pub(super) fn end(mut self, common: &mut Common, desk: &mut Desk<'_>) {
        self.forget_notifies(common, desk);
        for Expected { state, .. } in self.expected {
            match state {
                State::Pending(ask) => common.asks.orphan(desk, ask),
                State::Answered(ask, Answer::Granted { fence, .. }) => {
                    common.asks.give_back(desk, ask, fence);
                }
                State::Answered(ask, _) => common.asks.remove(ask),
                State::Bytes(_) => {}
            }
        }
        for (ask, fence) in self.output.unsent_grants() {
            common.asks.give_back(desk, ask, fence);
        }
    }
}

/// Short replies of every session.
pub(super) fn put_ok(out: &mut Vec<u8>) {
    put_simple(out, &"OK");
}
