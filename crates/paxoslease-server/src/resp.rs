//! Sessions of clients that speak RESP, the protocol of Redis, on the threads of the shards.
//!
//! A session reads commands as they come and works on all of them at once; replies leave in the
//! order of their commands, as RESP demands. So an acquire that waits holds up the replies behind
//! it on its connection, though not their effect: give a waiter its own connection, as with BLPOP,
//! or let it wait by NOTIFY.
//!
//! A lease belongs to whoever has its fence, not to a connection: closing one releases nothing that
//! was told. What was not told yet is taken back (P8).

mod asks;
mod command;
mod complaint;
mod deadlines;
mod execute;
mod expected;
mod house;
mod output;
mod reply;
mod session;
mod standing;
mod tally;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use paxoslease_node::front::{Answer, ConnId, Desk, FrontEnd, Hint, Instant, Seldom};
use paxoslease_wire::resp::{Request, put_error};
use tokio::sync::watch;

use crate::access::{Denied, Place, Rules};
use crate::limits::{Limit, RateLimiter};
use crate::{Config, Gate, Verb};
use asks::{Asks, Owner};
use complaint::Complaint;
use deadlines::Deadlines;
use execute::TLS;
use house::House;
use reply::put_stopping;
use session::Session;
use tally::Tally;

/// Requests looked at before they are carried out. More may be read at once, but who asks for pages
/// of lists is answered one by one, and must not have all of them read for each.
const FORESEEN_MAX: usize = 256;

/// Makes the front-end of each shard.
pub(crate) fn front_ends(
    config: &Config,
    gate: &Gate,
) -> impl FnMut(u16) -> Box<dyn FrontEnd> + Send + use<> {
    let house = Arc::new(House { gate: gate.clone(), ..House::new(config) });
    move |_shard| Box::new(Sessions::new(Arc::clone(&house)))
}

/// The sessions of one shard.
struct Sessions {
    /// By number of their connection.
    sessions: Vec<Option<Box<Session>>>,
    /// How many there are.
    count: usize,
    common: Common,
    /// Sessions in the middle of a request.
    halves: Deadlines,
    /// When to look for clients that do not read.
    look_at: Option<Instant>,
    /// Lines of the log about those.
    slow_readers: Seldom,
}

/// What the sessions of one shard share.
struct Common {
    house: Arc<House>,
    gate: watch::Receiver<Arc<Rules>>,
    /// As they were when this thread turned last.
    rules: Arc<Rules>,
    notices: Seldom,
    /// Sessions that have shown no token where one is asked for.
    strangers: Deadlines,
    asks: Asks,
    /// Sessions to be flushed.
    dirty: Vec<usize>,
    /// Sessions that watch something.
    watchers: Vec<usize>,
    /// The patterns of all of them.
    watched: usize,
    tally: Tally,
    scratch: Vec<u8>,
    /// The quarantine, as it was seen in this turn.
    quarantine: (Instant, Duration),
    is_leaving: bool,
}

impl Common {
    /// How long this node stays silent still.
    fn quarantine(&mut self, desk: &Desk<'_>) -> Duration {
        if self.quarantine.0 != desk.now() {
            self.quarantine = (desk.now(), desk.status().quarantine_remaining);
        }
        self.quarantine.1
    }

    /// The cell as this node sees it, with the same words as everywhere.
    fn status(&self, desk: &Desk<'_>, place: Option<Place>) -> serde_json::Value {
        let mut status = desk.status();
        status.waiting.retain(|wanted| self.rules.allows(place, Verb::Admin, &wanted.name));
        let mut status = serde_json::to_value(status).expect("plain numbers and texts");
        if let Some(fields) = status.as_object_mut() {
            fields.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
            fields.insert("connections".to_owned(), self.connections().into());
        }
        status
    }

    fn info(&self, desk: &Desk<'_>) -> String {
        let (house, status) = (&self.house, desk.status());
        let uptime = desk.uptime().as_secs();
        let mut info = String::new();
        // Writing to a string cannot fail.
        let _written = write!(
            info,
            "# Server\r\nserver:paxoslease\r\npaxoslease_version:{}\r\ncell:{}\r\nnode:{}\r\n\
             role:{}\r\nuptime_in_seconds:{uptime}\r\nready:{}\r\nquarantine_remaining_ms:{}\r\n\
             \r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
             \r\n# Leases\r\nleases:{}\r\nwaiters:{}\r\nrounds_in_flight:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            house.cell,
            house.node,
            house.role,
            u8::from(status.ready),
            status.quarantine_remaining.as_millis(),
            self.connections(),
            house.limits.connections,
            status.leases,
            status.waiters,
            status.rounds_in_flight,
        );
        info
    }

    fn connections(&self) -> usize {
        self.house.connections.load(Ordering::Relaxed)
    }

    /// A session that watched so many patterns before watches so many now.
    fn watches(&mut self, desk: &mut Desk<'_>, conn: ConnId, before: usize, now: usize) {
        self.watched = self.watched - before + now;
        if before == 0 && now > 0 {
            if self.watchers.is_empty() {
                desk.watch(true);
            }
            self.watchers.push(conn.index());
        } else if before > 0 && now == 0 {
            self.watchers.retain(|watcher| *watcher != conn.index());
            if self.watchers.is_empty() {
                desk.watch(false);
            }
        }
    }
}

impl Sessions {
    fn new(house: Arc<House>) -> Self {
        let gate = house.gate.rules();
        let rules = Arc::clone(&gate.borrow());
        Self {
            sessions: Vec::new(),
            count: 0,
            halves: Deadlines::new(house.half_request_after),
            common: Common {
                strangers: Deadlines::new(house.stranger_after),
                house,
                gate,
                rules,
                notices: Seldom::default(),
                asks: Asks::default(),
                dirty: Vec::new(),
                watchers: Vec::new(),
                watched: 0,
                tally: Tally::new(),
                scratch: Vec::new(),
                quarantine: (Instant::ZERO, Duration::ZERO),
                is_leaving: false,
            },
            look_at: None,
            slow_readers: Seldom::default(),
        }
    }

    fn end(&mut self, desk: &mut Desk<'_>, index: usize) {
        let Some(session) = self.sessions.get_mut(index).and_then(Option::take) else { return };
        self.count -= 1;
        self.halves.forget(index);
        let common = &mut self.common;
        common.strangers.forget(index);
        common.house.connections.fetch_sub(1, Ordering::Relaxed);
        common.tally.touch(desk.now());
        common.watches(desk, session.conn, session.patterns.len(), 0);
        session.end(common, desk);
    }

    /// Gives up clients that do not come to the end of a request.
    fn look_for_halves(&mut self, desk: &mut Desk<'_>) {
        let (common, patience) = (&mut self.common, self.halves.patience);
        for index in self.halves.overdue(desk.now()) {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            tracing::debug!(client = session.address, "a client does not finish a request");
            common.tally.limited(desk.now(), Limit::HalfRequest, 1);
            session.complain(common, &Complaint::Half(patience));
            session.hang_up(common, desk);
        }
    }

    /// Gives up clients that show no token where one is asked for. Who has not read what came
    /// before cannot stay for it.
    fn look_for_strangers(&mut self, desk: &mut Desk<'_>) {
        let patience = self.common.strangers.patience;
        for index in self.common.strangers.overdue(desk.now()) {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            let common = &mut self.common;
            tracing::debug!(client = session.address, "a client shows no token");
            common.tally.refused(desk.now(), Denied::NoToken.reason());
            session.complain(common, &Complaint::Stranger(patience));
            session.hang_up(common, desk);
            let _has_more_to_hear = session.flush(common, desk);
            desk.close(session.conn);
            self.end(desk, index);
        }
    }

    /// Gives up clients that have read nothing for long.
    fn look_for_slow_readers(&mut self, desk: &mut Desk<'_>) {
        let (now, patience) = (desk.now(), self.common.house.slow_reader_after);
        self.look_at = None;
        for index in 0..self.sessions.len() {
            let Some(session) = &self.sessions[index] else { continue };
            let Some(blocked_at) = session.output.blocked_at() else { continue };
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
            desk.close(session.conn);
            self.end(desk, index);
        }
    }
}

impl FrontEnd for Sessions {
    fn accepted(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        let (common, now) = (&mut self.common, desk.now());
        common.tally.touch(now);
        let most = common.house.limits.connections as usize;
        let others = common.house.connections.fetch_add(1, Ordering::Relaxed);
        if common.is_leaving || others >= most {
            common.house.connections.fetch_sub(1, Ordering::Relaxed);
            let mut out = Vec::new();
            if common.is_leaving {
                put_stopping(&mut out);
            } else {
                common.tally.limited(now, Limit::Connections, 1);
                let text = format_args!(
                    "BUSY this node has {most} connections, its limit; ask another, or raise \
                     limits.connections"
                );
                put_error(&mut out, &text);
            }
            // A new connection has room for a line; if not, it is closed all the same.
            let _taken = desk.send(conn, &out);
            return desk.close(conn);
        }
        let id = common.house.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let address = desk.address(conn).map_or_else(String::new, |address| address.to_string());
        let pace = common.house.limits.acquires_per_second.map(RateLimiter::new);
        let index = conn.index();
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(Box::new(Session::new(conn, id, address, pace)));
        if !common.rules.is_open() {
            common.strangers.begin(index, now);
        }
        self.count += 1;
    }

    fn received(&mut self, desk: &mut Desk<'_>, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(Some(session)) = self.sessions.get_mut(conn.index()) else { return bytes.len() };
        let common = &mut self.common;
        common.tally.touch(desk.now());
        let mut ahead = bytes;
        let names = std::iter::from_fn(|| {
            let (request, len) = Request::parse(ahead).ok()??;
            ahead = &ahead[len..];
            // Of every command about a lease, that is its name; of others it is a name nobody has.
            Some(request.arg(1).unwrap_or_default())
        });
        desk.foresee(names.take(FORESEEN_MAX));
        let (mut request, mut consumed) = (Request::EMPTY, 0);
        while !session.is_closing {
            match request.read(&bytes[consumed..]) {
                Ok(None) if bytes[consumed..].first() == Some(&TLS) => {
                    let complaint = session.begins_with_tls(common, desk);
                    session.complain(common, &complaint);
                }
                Ok(None) => {
                    let is_half = consumed < bytes.len();
                    if consumed > 0 || !is_half {
                        self.halves.forget(conn.index());
                    }
                    if is_half {
                        self.halves.begin(conn.index(), desk.now());
                    }
                    return consumed;
                }
                Ok(Some(len)) => {
                    consumed += len;
                    session.execute(common, desk, &request);
                }
                Err(error) => {
                    tracing::debug!(client = session.address, %error, "a client is out of step");
                    common.tally.limited(desk.now(), Limit::Framing, 1);
                    session.complain(common, &Complaint::Framing(error));
                    session.hang_up(common, desk);
                }
            }
            let must_wait = session.listing.is_some() || session.is_full(common);
            if must_wait && !session.is_closing {
                session.hold(common, desk);
                // What was said may have left already by the time the turn ends.
                session.touch(common);
                self.halves.forget(conn.index());
                return consumed;
            }
        }
        // What follows is read and ignored, so that a client that leaves is noticed.
        bytes.len()
    }

    fn writable(&mut self, _desk: &mut Desk<'_>, conn: ConnId) {
        if let Some(Some(session)) = self.sessions.get_mut(conn.index()) {
            session.touch(&mut self.common);
        }
    }

    fn ending(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        if let Some(Some(session)) = self.sessions.get_mut(conn.index()) {
            session.input_ends(&mut self.common, desk);
        }
    }

    fn out_of_sight(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        if let Some(Some(session)) = self.sessions.get_mut(conn.index()) {
            session.out_of_sight(&mut self.common, desk);
        }
    }

    fn ended(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        if let Some(Some(session)) = self.sessions.get_mut(conn.index()) {
            session.input_ends(&mut self.common, desk);
            session.is_closing = true;
        }
    }

    fn closed(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        self.end(desk, conn.index());
    }

    fn answered(&mut self, desk: &mut Desk<'_>, ask: u64, answer: Answer) {
        let (id, common) = (ask as usize, &mut self.common);
        if let Some(limit) = Limit::of(&answer) {
            common.tally.limited(desk.now(), limit, 1);
        }
        let ask = common.asks.get(id);
        if let Some(claim) = &mut ask.claim
            && let (Answer::Granted { fence, ttl, .. }, Some(label)) = (&answer, &ask.label)
        {
            claim.granted(label.name(), *fence, desk.now().after(*ttl));
        }
        match ask.owner {
            Owner::Nobody => match answer {
                Answer::Granted { fence, .. } => common.asks.give_back(desk, id, fence),
                _ => common.asks.remove(id),
            },
            Owner::Reply { session, command } => {
                let patient_until = ask.notify.as_ref().map(|notify| notify.patient_until);
                let may_come = matches!(answer, Answer::Held(_) | Answer::NoQuorum | Answer::Full);
                let must_wait = may_come && patient_until.is_some_and(|until| desk.now() < until);
                let Some(Some(session)) = self.sessions.get_mut(session) else { return };
                if must_wait {
                    session.queue(common, desk, (command, id));
                } else {
                    session.answer(common, desk, (command, id), answer);
                }
            }
            Owner::Push { session } => {
                if let Some(Some(session)) = self.sessions.get_mut(session) {
                    session.notified(common, id, &answer);
                }
            }
        }
    }

    fn hinted(&mut self, desk: &mut Desk<'_>, hint: &Hint) {
        let name = match hint {
            Hint::Held(seen) => seen.label.name(),
            Hint::Freed(label) | Hint::Expired { label, .. } => label.name(),
            _ => return,
        };
        for place in 0..self.common.watchers.len() {
            let watcher = self.common.watchers[place];
            if let Some(Some(session)) = self.sessions.get_mut(watcher)
                && session.patterns.iter().any(|pattern| pattern.fits(name.as_str()))
                && self.common.rules.allows(session.place(), Verb::Read, name.as_str())
            {
                session.hint(&mut self.common, desk, hint);
            }
        }
    }

    fn tick(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        if self.common.follow_rules() {
            for session in self.sessions.iter_mut().flatten() {
                session.recheck(&mut self.common, desk);
            }
        }
        self.look_for_halves(desk);
        self.look_for_strangers(desk);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_for_slow_readers(desk);
        }
        if self.common.tally.publish_at().is_some_and(|at| at <= now) {
            let connections = self.common.connections();
            self.common.tally.publish(connections);
        }
    }

    fn flush(&mut self, desk: &mut Desk<'_>) {
        let mut dirty = std::mem::take(&mut self.common.dirty);
        // Backwards: where a lease changes hands, its new holder is told before the old one.
        for index in dirty.drain(..).rev() {
            let Some(Some(session)) = self.sessions.get_mut(index) else { continue };
            if !session.flush(&mut self.common, desk) {
                desk.close(session.conn);
                self.end(desk, index);
            } else if session.output.blocked_at().is_some() && self.look_at.is_none() {
                self.look_at = Some(desk.now().after(self.common.house.slow_reader_after));
            }
        }
        self.common.dirty = dirty;
    }

    fn next_at(&self) -> Option<Instant> {
        let publish_at = self.common.tally.publish_at();
        let deadlines = self.halves.look_at().into_iter().chain(self.common.strangers.look_at());
        publish_at.into_iter().chain(self.look_at).chain(deadlines).min()
    }

    fn leave(&mut self, desk: &mut Desk<'_>) {
        self.common.is_leaving = true;
        for session in self.sessions.iter_mut().flatten() {
            session.leave(&mut self.common, desk);
        }
    }

    fn is_done(&self) -> bool {
        self.count == 0 && self.common.asks.is_empty()
    }

    fn not_tls(&self) -> &'static [u8] {
        b"-ERR this port speaks TLS; connect with it, as redis-cli --tls or rediss:// do\r\n"
    }
}

#[cfg(test)]
mod tests;
