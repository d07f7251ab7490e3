//! Sessions of clients that speak RESP, the protocol of Redis, on the threads of the shards.
//!
//! A session reads commands as they come and works on all of them at once. Replies leave in the
//! order of their commands, as RESP demands. So an acquire that waits delays the replies behind it
//! on its connection, though not the effect of their commands: a waiter should have its own
//! connection, as with BLPOP, or wait by NOTIFY.
//!
//! A lease belongs to the client that knows its fence, not to a connection. Closing a connection
//! releases no lease whose grant was sent. A grant that was not sent is given back (P8).

mod auth_state;
mod command;
mod deadlines;
mod deferred;
mod execute;
mod expected;
mod output;
mod pending;
mod redis;
mod reply;
mod reply_error;
mod server_context;
mod session;
mod steps;
mod tally;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use paxoslease_node::front::{
    Answer, ConnId, FrontEnd, Hint, Instant, LogThrottle, Name, ShardHandle,
};
use paxoslease_wire::resp::{Request, put_error};
use tokio::sync::watch;

use crate::access::{Denied, Place, Rules, shorten_status};
use crate::audit::{Audit, Entry, Event};
use crate::durable::DurableRequest;
use crate::limits::RateLimiter;
use crate::{Config, Gate, Verb};
use deadlines::Deadlines;
use deferred::Deferred;
use execute::TLS;
use paxoslease_node::{AskError, Limit};
use pending::{Owner, PendingRequests};
use reply::put_stopping;
use reply_error::ReplyError;
use server_context::ServerContext;
use session::Session;
use steps::TurnSteps;
use tally::Tally;

/// Requests whose names are prefetched. A read may bring more, but a session that asks for pages of
/// lists gets the same bytes again after each page, and must not parse all of them every time.
const PREFETCHED_MAX: usize = 256;

/// Makes the front-end of each shard, also for simulated nodes.
pub fn front_ends(
    config: &Config,
    gate: &Gate,
) -> impl FnMut(u16) -> Box<dyn FrontEnd> + Send + use<> {
    let server = Arc::new(ServerContext { gate: gate.clone(), ..ServerContext::new(config) });
    move |shard| {
        let mut sessions = Sessions::new(Arc::clone(&server));
        // The front-end of each shard can see the leases of all shards. One is enough.
        sessions.common.audits_expiry = shard == 0 && server.gate.audit.is_on();
        sessions.common.counts_ends = shard == 0;
        Box::new(sessions)
    }
}

/// The sessions of one shard.
struct Sessions {
    /// By index of their connection.
    sessions: Vec<Option<Box<Session>>>,
    count: usize,
    common: Common,
    /// Sessions that have sent only a part of a request.
    partial_requests: Deadlines,
    /// When to look for clients that do not read.
    look_at: Option<Instant>,
    slow_readers: LogThrottle,
    /// The epoch of the members that clients know.
    epoch: u32,
    is_started: bool,
}

/// What the sessions of one shard share.
struct Common {
    server: Arc<ServerContext>,
    gate: watch::Receiver<Arc<Rules>>,
    /// The rules in the last turn of this thread.
    rules: Arc<Rules>,
    notices: LogThrottle,
    audit: Audit,
    /// Whether leases that run out go to the audit log, which requires hints.
    audits_expiry: bool,
    /// Whether quotas follow the leases that end, wherever that is; and whether it gets hints of
    /// that now.
    counts_ends: bool,
    is_counting: bool,
    /// Sessions without a token where one is required.
    unauthenticated: Deadlines,
    pending: PendingRequests,
    /// Sessions to flush, by index.
    dirty: Vec<usize>,
    /// Sessions that watch, by index.
    watchers: Vec<usize>,
    /// The number of patterns of all of them.
    watched: usize,
    /// Sessions that subscribed to channels, by index.
    subscribers: BTreeSet<usize>,
    /// The number of channels and patterns of all of them.
    subscribed: usize,
    /// Messages that not all of them were told yet.
    notes: VecDeque<redis::Note>,
    steps: TurnSteps,
    /// What waits for the steps of the next turn.
    deferred: VecDeque<Deferred>,
    /// How many watchers, subscribers and waiting clients want hints, and the audit log.
    listeners: usize,
    /// Operations of the Redis dialect.
    operations: redis::Operations,
    /// Those among them that wait until a name is free.
    waits: redis::Waits,
    tally: Tally,
    scratch: Vec<u8>,
    /// Why this node finds no majority, and the turn in which that was read.
    no_majority: (Instant, AskError),
    is_leaving: bool,
}

/// What sessions work on during one turn of the shard's thread.
struct Turn<'a, 'b> {
    common: &'a mut Common,
    shard: &'a mut ShardHandle<'b>,
}

impl Common {
    /// Why this node finds no majority, as far as it can tell by itself.
    fn no_majority(&mut self, shard: &ShardHandle<'_>) -> AskError {
        if self.no_majority.0 != shard.now() {
            self.no_majority = (shard.now(), shard.status().no_majority());
        }
        self.no_majority.1.clone()
    }

    /// The status with the same fields as over HTTP, and some of the daemon.
    fn status(&self, shard: &ShardHandle<'_>, place: Option<Place>) -> serde_json::Value {
        let mut status = shard.status();
        status.waiting.retain(|wanted| self.rules.allows(place, Verb::Admin, &wanted.name));
        let mut status = serde_json::to_value(status).expect("plain numbers and texts");
        if let Some(fields) = status.as_object_mut() {
            fields.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
            fields.insert("connections".to_owned(), self.connections().into());
        }
        if self.rules.status_verb(place) != Ok(Verb::Admin) {
            shorten_status(&mut status);
        }
        status
    }

    fn info(&self, shard: &ShardHandle<'_>) -> String {
        let (server, status) = (&self.server, shard.status());
        let uptime = shard.uptime().as_secs();
        let mut info = String::new();
        // Writing to a string cannot fail.
        let _written = write!(
            info,
            "# Server\r\nserver:paxoslease\r\npaxoslease_version:{}\r\ncell:{}\r\nnode:{}\r\n\
             node_role:{}\r\nuptime_in_seconds:{uptime}\r\nready:{}\r\nquarantine_remaining_ms:{}\r\n\
             \r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
             \r\n# Leases\r\nleases:{}\r\nwaiters:{}\r\nrounds_in_flight:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            server.config.node.cell,
            server.config.node.node,
            server.config.node.role,
            u8::from(status.ready),
            status.quarantine_remaining.as_millis(),
            self.connections(),
            server.config.limits.connections,
            status.leases,
            status.waiters,
            status.rounds_in_flight,
        );
        redis::put_info(self, &mut info);
        info
    }

    fn connections(&self) -> usize {
        self.server.connections.load(Ordering::Relaxed)
    }

    /// Notes that the number of patterns of a session has changed.
    fn watches(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId, before: usize, now: usize) {
        self.watched = self.watched - before + now;
        if before == 0 && now > 0 {
            self.watchers.push(conn.index());
            self.listen(shard, true);
        } else if before > 0 && now == 0 {
            self.watchers.retain(|watcher| *watcher != conn.index());
            self.listen(shard, false);
        }
    }

    /// One more, or one less, wants hints.
    fn listen(&mut self, shard: &mut ShardHandle<'_>, is_one_more: bool) {
        let before = self.listeners;
        self.listeners = if is_one_more { before + 1 } else { before - 1 };
        if (before == 0) != (self.listeners == 0) {
            shard.watch(is_one_more);
        }
    }

    /// A lease is being released, by any client.
    fn ended(&self, name: Name<'_>, fence: u64) {
        if self.rules.has_quotas() {
            self.server.gate.quotas.ended(name, fence);
        }
    }

    /// Leases also end through other nodes, and by themselves.
    fn count_ends(&self, hint: &Hint) {
        let quotas = &self.server.gate.quotas;
        match hint {
            Hint::Held(seen) => quotas.began(seen.label.name(), seen.tenure.fence()),
            Hint::Freed { label, fence: Some(fence) } | Hint::Expired { label, fence } => {
                quotas.ended(label.name(), *fence);
            }
            _ => {}
        }
    }

    /// Notes that the number of channels of a session has changed.
    fn subscribes(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId, before: usize, now: usize) {
        self.subscribed = self.subscribed - before + now;
        if before == 0 && now > 0 {
            self.subscribers.insert(conn.index());
            self.listen(shard, true);
        } else if before > 0 && now == 0 {
            self.subscribers.remove(&conn.index());
            self.listen(shard, false);
        }
    }
}

impl Sessions {
    fn new(server: Arc<ServerContext>) -> Self {
        let gate = server.gate.rules();
        let rules = Arc::clone(&gate.borrow());
        Self {
            sessions: Vec::new(),
            count: 0,
            partial_requests: Deadlines::new(server.partial_request_after),
            common: Common {
                unauthenticated: Deadlines::new(server.unauthenticated_after),
                audit: server.gate.audit.clone(),
                audits_expiry: false,
                counts_ends: false,
                is_counting: false,
                server,
                gate,
                rules,
                notices: LogThrottle::default(),
                pending: PendingRequests::default(),
                dirty: Vec::new(),
                watchers: Vec::new(),
                watched: 0,
                subscribers: BTreeSet::new(),
                subscribed: 0,
                notes: VecDeque::new(),
                steps: TurnSteps::default(),
                deferred: VecDeque::new(),
                listeners: 0,
                operations: redis::Operations::default(),
                waits: redis::Waits::default(),
                tally: Tally::new(),
                scratch: Vec::new(),
                no_majority: (Instant::ZERO, AskError::NO_MAJORITY),
                is_leaving: false,
            },
            look_at: None,
            slow_readers: LogThrottle::default(),
            epoch: 0,
            is_started: false,
        }
    }

    /// Calls the session of a connection, if there is one.
    fn with(
        &mut self,
        shard: &mut ShardHandle<'_>,
        conn: ConnId,
        call: impl FnOnce(&mut Session, &mut Turn<'_, '_>),
    ) {
        if let Some(Some(session)) = self.sessions.get_mut(conn.index()) {
            call(session, &mut Turn { common: &mut self.common, shard });
        }
    }

    /// Calls the session of an operation of the Redis dialect.
    fn with_operation(
        &mut self,
        shard: &mut ShardHandle<'_>,
        id: redis::OperationId,
        call: impl FnOnce(&mut Session, &mut Turn<'_, '_>),
    ) {
        let session = self.common.operations.session(id);
        if let Some(Some(session)) = session.and_then(|index| self.sessions.get_mut(index)) {
            call(session, &mut Turn { common: &mut self.common, shard });
        }
    }

    /// A name is free: tells the client that has waited for it longest.
    fn freed(&mut self, shard: &mut ShardHandle<'_>, name: &str) {
        if let Some(id) = self.common.first_waiting(name) {
            self.with_operation(shard, id, |session, turn| session.wake(turn, id));
        }
    }

    fn end(&mut self, shard: &mut ShardHandle<'_>, index: usize) {
        let Some(session) = self.sessions.get_mut(index).and_then(Option::take) else { return };
        self.count -= 1;
        self.partial_requests.forget(index);
        let common = &mut self.common;
        common.unauthenticated.forget(index);
        common.server.connections.fetch_sub(1, Ordering::Relaxed);
        common.tally.touch(shard.now());
        common.watches(shard, session.conn, session.watched(), 0);
        common.subscribes(shard, session.conn, session.channels.len(), 0);
        session.end(&mut Turn { common, shard });
    }

    /// Closes connections whose client does not finish a request.
    fn close_partial_requests(&mut self, shard: &mut ShardHandle<'_>) {
        let patience = self.partial_requests.patience;
        for index in self.partial_requests.overdue(shard.now()) {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            tracing::debug!(client = session.address, "a client did not finish a request");
            let turn = &mut Turn { common: &mut self.common, shard };
            turn.common.tally.limited(turn.shard.now(), Limit::HalfRequest, 1);
            session.reply_error(turn.common, &ReplyError::PartialRequest(patience));
            session.hang_up(turn);
        }
    }

    /// Closes connections without a token, where one is required, even if replies are unread.
    fn close_unauthenticated(&mut self, shard: &mut ShardHandle<'_>) {
        let patience = self.common.unauthenticated.patience;
        for index in self.common.unauthenticated.overdue(shard.now()) {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            let turn = &mut Turn { common: &mut self.common, shard };
            tracing::debug!(client = session.address, "a client sent no token");
            turn.common.tally.refused(turn.shard.now(), Denied::NoToken.reason());
            session.reply_error(turn.common, &ReplyError::Unauthenticated(patience));
            session.hang_up(turn);
            let _has_unread_replies = session.flush(turn);
            shard.sockets.close(session.conn);
            self.end(shard, index);
        }
    }

    /// Closes connections whose client has read nothing for too long.
    fn close_slow_readers(&mut self, shard: &mut ShardHandle<'_>) {
        let (now, patience) = (shard.now(), self.common.server.slow_reader_after);
        self.look_at = None;
        for index in 0..self.sessions.len() {
            let Some(session) = &self.sessions[index] else { continue };
            let Some(blocked_at) = session.output.blocked_at else { continue };
            let give_up_at = blocked_at.after(patience);
            if now < give_up_at {
                self.look_at = Some(self.look_at.map_or(give_up_at, |at| at.min(give_up_at)));
                continue;
            }
            if let Some(count) = self.slow_readers.again(now) {
                tracing::warn!(
                    client = session.address,
                    unread_bytes = session.output.pending(),
                    count,
                    "clients read nothing for {patience:?}, so their connections are closed"
                );
            }
            self.common.tally.limited(now, Limit::SlowReader, 1);
            shard.sockets.close(session.conn);
            self.end(shard, index);
        }
    }
}

impl FrontEnd for Sessions {
    fn accepted(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        let (common, now) = (&mut self.common, shard.now());
        common.tally.touch(now);
        let most = common.server.config.limits.connections as usize;
        let others = common.server.connections.fetch_add(1, Ordering::Relaxed);
        if common.is_leaving || others >= most {
            common.server.connections.fetch_sub(1, Ordering::Relaxed);
            let mut out = Vec::new();
            if common.is_leaving {
                put_stopping(&mut out);
            } else {
                common.tally.limited(now, Limit::Connections, 1);
                let text = format_args!(
                    "BUSY connections: this node has {most} connections, its limit; ask another, or raise \
                     limits.connections"
                );
                put_error(&mut out, &text);
            }
            // A new connection has room for a line. Otherwise it is closed without one.
            let _taken = shard.sockets.send(conn, &out);
            return shard.sockets.close(conn);
        }
        let id = common.server.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let address =
            shard.sockets.address(conn).map_or_else(String::new, |address| address.to_string());
        let rate_limiter = common.server.config.limits.acquires_per_second.map(RateLimiter::new);
        let index = conn.index();
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(Box::new(Session::new(conn, id, address, rate_limiter)));
        if !common.rules.is_open() {
            common.unauthenticated.begin(index, now);
        }
        self.count += 1;
    }

    fn received(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(Some(session)) = self.sessions.get_mut(conn.index()) else { return bytes.len() };
        let turn = &mut Turn { common: &mut self.common, shard };
        turn.common.tally.touch(turn.shard.now());
        let mut ahead = bytes;
        let names = std::iter::from_fn(|| {
            let (request, len) = Request::parse(ahead).ok()??;
            ahead = &ahead[len..];
            // The name, if the command is about a lease. It is harmless to look for other words.
            Some(request.arg(1).unwrap_or_default())
        });
        turn.shard.prefetch(names.take(PREFETCHED_MAX));
        let (mut request, mut consumed) = (Request::EMPTY, 0);
        while !session.is_closing {
            match request.read(&bytes[consumed..]) {
                Ok(None) if bytes[consumed..].first() == Some(&TLS) => {
                    let error = session.begins_with_tls(turn);
                    session.reply_error(turn.common, &error);
                }
                Ok(None) => {
                    let is_partial = consumed < bytes.len();
                    if consumed > 0 || !is_partial {
                        self.partial_requests.forget(conn.index());
                    }
                    if is_partial {
                        self.partial_requests.begin(conn.index(), turn.shard.now());
                    }
                    return consumed;
                }
                Ok(Some(len)) => {
                    consumed += len;
                    let raw = &bytes[consumed - len..consumed];
                    if let Err(error) = session.execute(turn, &request, raw) {
                        if let Some(limit) = error.limit() {
                            turn.common.tally.limited(turn.shard.now(), limit, 1);
                        }
                        session.reply_error(turn.common, &error);
                    }
                }
                Err(error) => {
                    tracing::debug!(client = session.address, %error, "a client sent malformed RESP");
                    turn.common.tally.limited(turn.shard.now(), Limit::Framing, 1);
                    session.reply_error(turn.common, &ReplyError::Framing(error));
                    session.hang_up(turn);
                }
            }
            let must_wait = session.listing.is_some() || session.is_full(turn.common);
            if must_wait && !session.is_closing {
                session.hold(turn);
                // If the replies are sent before the turn ends, the flush resumes the session.
                session.touch(turn.common);
                self.partial_requests.forget(conn.index());
                return consumed;
            }
        }
        // The rest is read and ignored, so that a client that leaves is noticed.
        bytes.len()
    }

    fn writable(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.with(shard, conn, |session, turn| session.touch(turn.common));
    }

    fn ending(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.with(shard, conn, Session::input_ends);
    }

    fn read_ahead_full(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.with(shard, conn, Session::read_ahead_full);
    }

    fn ended(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.with(shard, conn, |session, turn| {
            session.input_ends(turn);
            session.is_closing = true;
        });
    }

    fn closed(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.end(shard, conn.index());
    }

    fn answered(&mut self, shard: &mut ShardHandle<'_>, id: u64, answer: Answer) {
        let (id, common) = (id as usize, &mut self.common);
        let request = common.pending.get(id);
        if let Answer::Granted { permit: Some(_), .. } = answer {
            request.name_permit(&answer);
        }
        if let Some(claim) = &mut request.claim
            && let (Answer::Granted { tenure, ttl, .. }, Some(label)) = (&answer, &request.label)
        {
            let now = shard.now();
            let until = match request.durable.and_then(DurableRequest::acquired) {
                Some(lasts) => lasts.ends_at(now),
                None => now.after(ttl.as_duration()),
            };
            claim.granted(label.name(), tenure.fence(), until);
        }
        if let Some(renewal) = request.renewal.take() {
            let now = shard.now();
            match answer {
                Answer::Renewed { ttl, .. } => renewal.renewed(now.after(ttl.as_duration())),
                Answer::Kept { lasts, .. } => renewal.renewed(lasts.ends_at(now)),
                _ => {}
            }
        }
        if let Some(entry) = request.entry.take() {
            request.entry = common.audit.answered(entry, &answer);
        }
        // Quotas and the audit log count an answer when it comes. Its evaluation may have to wait.
        if common.steps.are_spent() && common.pending.get(id).takes_steps() {
            return common.deferred.push_back(Deferred::Answer(id, answer));
        }
        if let Some(limit) = answer.limit() {
            common.tally.limited(shard.now(), limit, 1);
        }
        let request = common.pending.get(id);
        match request.owner {
            Owner::Nobody => match answer {
                Answer::Granted { tenure, .. } => {
                    common.pending.give_back(shard, id, tenure.fence());
                }
                _ => common.pending.remove(id),
            },
            Owner::Reply { session, command } => {
                let patient_until = request.notify.as_ref().map(|notify| notify.patient_until);
                let may_come = matches!(answer, Answer::Held(_) | Answer::NoQuorum | Answer::Full);
                let must_wait = may_come && patient_until.is_some_and(|until| shard.now() < until);
                let Some(Some(session)) = self.sessions.get_mut(session) else { return };
                let turn = &mut Turn { common, shard };
                if must_wait {
                    session.queue(turn, command, id);
                } else {
                    session.answer(turn, command, id, answer);
                }
            }
            Owner::Push { session } => {
                if let Some(Some(session)) = self.sessions.get_mut(session) {
                    session.notified(common, id, &answer);
                }
            }
            Owner::Operation { operation, place } => {
                let session = common.operations.session(operation);
                if let Some(Some(session)) = session.and_then(|index| self.sessions.get_mut(index))
                {
                    let turn = &mut Turn { common, shard };
                    session.operation_answered(turn, operation, place, id, answer);
                }
            }
        }
    }

    fn hinted(&mut self, shard: &mut ShardHandle<'_>, hint: &Hint) {
        let name = match hint {
            Hint::Held(seen) => seen.label.name(),
            Hint::Freed { label, .. } | Hint::Expired { label, .. } => label.name(),
            Hint::Note(label) => return self.noted(shard, label),
            _ => return,
        };
        if self.common.is_counting {
            self.common.count_ends(hint);
        }
        if !matches!(hint, Hint::Held(_)) {
            self.freed(shard, name.as_str());
        }
        if self.common.audits_expiry
            && let Hint::Expired { label, fence } = hint
        {
            let holder = Some(label.holder().to_string());
            let entry = Entry::of(Event::Expired, name.as_str(), Some(*fence));
            self.common.audit.put(Entry { holder, ..entry });
        }
        for place in 0..self.common.watchers.len() {
            let watcher = self.common.watchers[place];
            let Some(Some(session)) = self.sessions.get_mut(watcher) else { continue };
            let turn = &mut Turn { common: &mut self.common, shard };
            session.hint_by_channel(turn, name.as_str(), hint);
            if session.patterns.iter().any(|pattern| pattern.fits(name.as_str()))
                && turn.common.rules.allows(session.place(), Verb::Read, name.as_str())
            {
                session.hint(turn, hint);
            }
        }
    }

    fn tick(&mut self, shard: &mut ShardHandle<'_>) {
        let now = shard.now();
        if !std::mem::replace(&mut self.is_started, true) && self.common.audits_expiry {
            self.common.listen(shard, true);
        }
        let is_counting = self.common.counts_ends && self.common.rules.has_quotas();
        if std::mem::replace(&mut self.common.is_counting, is_counting) != is_counting {
            self.common.listen(shard, is_counting);
        }
        self.go_on(shard);
        for id in self.common.due_waits(now) {
            self.with_operation(shard, id, |session, turn| session.look_at_wait(turn, id));
        }
        if self.common.follow_rules() {
            for session in self.sessions.iter_mut().flatten() {
                session.recheck(&mut Turn { common: &mut self.common, shard });
            }
        }
        if std::mem::replace(&mut self.epoch, shard.epoch()) != self.epoch {
            for session in self.sessions.iter_mut().flatten() {
                session.members_changed(&mut self.common, self.epoch);
            }
        }
        self.close_partial_requests(shard);
        self.close_unauthenticated(shard);
        if self.look_at.is_some_and(|at| at <= now) {
            self.close_slow_readers(shard);
        }
        if self.common.tally.publish_at.is_some_and(|at| at <= now) {
            let connections = self.common.connections();
            self.common.tally.publish(connections);
        }
    }

    fn flush(&mut self, shard: &mut ShardHandle<'_>) {
        let mut dirty = std::mem::take(&mut self.common.dirty);
        // Backwards: if a lease changes hands, its new holder is told before the old one.
        for index in dirty.drain(..).rev() {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            if !session.flush(&mut Turn { common: &mut self.common, shard }) {
                shard.sockets.close(session.conn);
                self.end(shard, index);
            } else if session.output.blocked_at.is_some() && self.look_at.is_none() {
                self.look_at = Some(shard.now().after(self.common.server.slow_reader_after));
            }
        }
        // The empty list keeps its memory, unless a session became dirty meanwhile.
        if self.common.dirty.is_empty() {
            self.common.dirty = dirty;
        }
    }

    fn next_at(&self) -> Option<Instant> {
        if !self.common.deferred.is_empty() || !self.common.notes.is_empty() {
            return Some(Instant::ZERO);
        }
        let publish_at = self.common.tally.publish_at;
        let deadlines = [self.partial_requests.look_at, self.common.unauthenticated.look_at];
        let others = [publish_at, self.look_at, self.common.waits.next_at()];
        deadlines.into_iter().chain(others).flatten().min()
    }

    fn leave(&mut self, shard: &mut ShardHandle<'_>) {
        self.common.is_leaving = true;
        for session in self.sessions.iter_mut().flatten() {
            session.leave(&mut Turn { common: &mut self.common, shard });
        }
    }

    fn is_done(&self) -> bool {
        self.count == 0 && self.common.pending.is_empty()
    }

    fn not_tls(&self) -> &'static [u8] {
        b"-ERR this port requires TLS; use redis-cli --tls, or rediss://\r\n"
    }
}

#[cfg(test)]
mod tests;
