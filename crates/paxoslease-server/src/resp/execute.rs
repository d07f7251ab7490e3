//! The commands: checks their arguments and passes requests to the shard.

use std::time::Duration;

use paxoslease_node::front::{
    Cursor, Holder, Label, Lasts, Name, PageMax, Permits, Request as LeaseRequest,
};
use paxoslease_wire::resp::{
    Protocol, Request, put_array, put_bulk, put_error, put_integer, put_simple,
};

use super::command::{Command, Spec, put_commands};
use super::pending::Notify;
use super::redis;
use super::reply::put_json;
use super::reply_error::ReplyError;
use super::session::Session;
use super::{Common, Turn};
use crate::audit::{Entry, Event};
use crate::config::{NamePattern, PatternError, Verb};
use crate::durable::{DurableRequest, lasting};
use crate::quota::{Claim, Renewal};
use paxoslease_node::{Limit, MembersChange, MembersRequest};

/// Patterns that one connection may watch.
pub(super) const PATTERNS_MAX: usize = 16;
/// Leases on a page of a list, by default and at most.
const COUNT: u32 = 100;
const COUNT_MAX: u32 = 1000;
const NOTIFY_ID_LEN_MAX: usize = 64;
const CLIENT_NAME_LEN_MAX: usize = 128;

/// The first words of HTTP lines that an attacker can make a browser or a server send here.
const HTTP: [&[u8]; 10] = [
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
    b"Host:",
];

/// The first byte of every TLS connection, and of no command.
pub(super) const TLS: u8 = 0x16;

/// Whether a line is more likely a browser's than that of a person: it has a path, as `GET /path`,
/// or ends with the version of HTTP.
fn is_http(command: &[u8], args: &[&[u8]], raw: &[u8]) -> bool {
    let is_get = || command.eq_ignore_ascii_case(b"GET");
    let has_path = || args.iter().any(|arg| arg.starts_with(b"/"));
    let version = || Request::all(raw).last().and_then(|last| last.get(..5));
    is_get() && has_path() || version().is_some_and(|word| word.eq_ignore_ascii_case(b"HTTP/"))
}

type Outcome<'a> = Result<(), ReplyError<'a>>;

impl Session {
    /// Carries out a request.
    pub(super) fn execute<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        request: &Request<'a>,
        raw: &'a [u8],
    ) -> Outcome<'a> {
        let [command, args @ ..] = request.args() else { return Ok(()) };
        let is_enabled = turn.common.server.config.redis.enabled;
        let spec = Spec::find(command).filter(|spec| is_enabled || !spec.command.is_redis());
        turn.common.tally.count(spec.map(|spec| spec.command));
        let is_line = raw.first() != Some(&b'*');
        if is_line && is_http(command, args, raw) {
            self.hang_up(turn);
            return Err(ReplyError::Http);
        }
        if self.is_in_refused_multi {
            match spec.map(|spec| spec.command) {
                Some(Command::Reset | Command::Quit) => self.is_in_refused_multi = false,
                _ => return self.refuse_in_multi(turn, command),
            }
        }
        let Some(spec) = spec else { return self.unknown(turn, command) };
        if !spec.takes(request.len()) {
            return Err(ReplyError::WrongNumber(spec));
        }
        if self.is_subscriber() && !spec.command.is_for_subscribers() {
            return Err(ReplyError::Subscriber(spec.name));
        }
        if !turn.common.rules.is_open() {
            self.admit(turn, spec.command, args)?;
        }
        match spec.command {
            Command::Acquire => self.acquire(turn, args)?,
            Command::Release => self.release(turn, args)?,
            Command::Renew => self.renew(turn, args)?,
            Command::Get | Command::Ttl => {
                let lease = name(args[0])?.into();
                let ask = self.ask(turn, None, None)?;
                turn.common.pending.get(ask).only_ttl = spec.command == Command::Ttl;
                turn.shard.ask(ask as u64, LeaseRequest::Inspect { lease });
            }
            Command::Cancel => self.cancel(turn, args[0]),
            Command::List => self.list(turn, args)?,
            Command::Watch => self.watch(turn, args[0])?,
            Command::Unwatch => self.unwatch(turn, args.first().copied())?,
            Command::Status => {
                let status = turn.common.status(turn.shard, self.place());
                self.reply(turn.common, |protocol, out| put_json(&status, protocol, out));
            }
            Command::Members => self.members(turn, args)?,
            Command::Ping if self.is_subscriber() => {
                self.reply(turn.common, |_, out| {
                    put_array(out, 2);
                    put_bulk(out, b"pong");
                    put_bulk(out, args.first().copied().unwrap_or_default());
                });
            }
            Command::Ping if args.is_empty() => {
                self.reply(turn.common, |_, out| put_simple(out, &"PONG"));
            }
            Command::Ping | Command::Echo => {
                self.reply(turn.common, |_, out| put_bulk(out, args[0]));
            }
            Command::Hello => self.hello(turn, args)?,
            Command::Auth => {
                self.authenticate(turn, args[args.len() - 1])?;
                self.reply_ok(turn.common);
            }
            Command::Client => self.client(turn.common, args)?,
            Command::Commands => self.reply(turn.common, |protocol, out| {
                if !put_commands(args, protocol, out) {
                    put_error(out, &ReplyError::Unexpected(args[0], spec.usage));
                }
            }),
            Command::Info => {
                let info = turn.common.info(turn.shard);
                self.reply(turn.common, |_, out| put_bulk(out, info.as_bytes()));
            }
            Command::Select => self.select(turn, args[0])?,
            Command::Reset => self.reset(turn),
            Command::Quit => {
                self.reply_ok(turn.common);
                self.hang_up(turn);
            }
            command if request.len() <= Request::REACHABLE => self.redis(turn, command, args)?,
            command => self.redis(turn, command, &Request::all(raw)[1..])?,
        }
        Ok(())
    }

    /// An attacker can make browsers and servers send HTTP requests here. No command is called like
    /// a method of HTTP, so the connection ends at the first line, before a command that was
    /// smuggled into the request is carried out.
    fn unknown<'a>(&mut self, turn: &mut Turn<'_, '_>, name: &'a [u8]) -> Outcome<'a> {
        if name.first() == Some(&TLS) {
            return Err(self.begins_with_tls(turn));
        }
        if HTTP.iter().any(|known| name.eq_ignore_ascii_case(known)) {
            self.hang_up(turn);
            return Err(ReplyError::Http);
        }
        if let Some(why) = redis::refusal(name) {
            self.is_in_refused_multi = name.eq_ignore_ascii_case(b"MULTI");
            return Err(ReplyError::Refused(name, why));
        }
        Err(ReplyError::UnknownCommand(name))
    }

    /// Libraries send a whole transaction at once, so what follows a refused MULTI must not be
    /// carried out by itself.
    fn refuse_in_multi<'a>(&mut self, turn: &mut Turn<'_, '_>, name: &'a [u8]) -> Outcome<'a> {
        let is_discard = name.eq_ignore_ascii_case(b"DISCARD");
        let is_exec = name.eq_ignore_ascii_case(b"EXEC");
        self.is_in_refused_multi = !(is_discard || is_exec);
        if is_discard {
            self.reply_ok(turn.common);
            return Ok(());
        }
        let why = redis::refusal(b"MULTI").unwrap_or_default();
        Err(if is_exec { ReplyError::ExecAbort(why) } else { ReplyError::InRefusedMulti(name) })
    }

    /// Tells a client in clear that this port does not use TLS.
    pub(super) fn begins_with_tls(&mut self, turn: &mut Turn<'_, '_>) -> ReplyError<'static> {
        turn.common.tally.limited(turn.shard.now(), Limit::Framing, 1);
        if let Some(count) = turn.common.notices.again(turn.shard.now()) {
            let client = &self.address;
            tracing::warn!(client, count, "clients use TLS, but tls.clients is off");
        }
        self.hang_up(turn);
        ReplyError::Tls
    }

    fn acquire<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let acquire = AcquireRequest::parse(args)?;
        if acquire.notify.is_some() && self.protocol == Protocol::Resp2 {
            return Err(ReplyError::NotifyNeedsResp3);
        }
        if acquire.permits.is_some() && !turn.common.rules.is_open() {
            // The lease will be that of a permit.
            self.admit_key(turn, Verb::Acquire, &format!("{}#1", acquire.name))?;
        }
        let now = turn.shard.now();
        let claim = self.claim(turn)?;
        let AcquireRequest { name, ttl, lasts, .. } = acquire;
        let notify = acquire.notify.map(|id| {
            Box::new(Notify {
                id: id.into(),
                ttl,
                permits: acquire.permits,
                asked_at: now,
                patient_until: now.after(acquire.wait),
                waited: Duration::ZERO,
            })
        });
        // Only an acquire with NOTIFY is requested twice and needs a copy of the holder.
        let (holder, wait) = match notify {
            None => (Holder::NONE, acquire.wait),
            Some(_) => (acquire.holder_or(&self.holder), Duration::ZERO),
        };
        let label = Label::new(name, holder);
        let ask = self.ask(turn, Some(label), notify)?;
        let holder = acquire.holder_or(&self.holder);
        if turn.common.audit.is_on() {
            let entry = self.entry(turn.common, Event::Granted, name, None);
            let holder = Some(holder.to_string());
            turn.common.pending.get(ask).entry = Some(Box::new(Entry { holder, ..entry }));
        }
        let asked = turn.common.pending.get(ask);
        (asked.waits, asked.claim) = (!wait.is_zero(), claim);
        asked.durable = lasts.map(DurableRequest::Acquire);
        let lease = (name, holder).into();
        let (permits, is_retried) = (acquire.permits, wait != acquire.wait);
        let request = LeaseRequest::Acquire { lease, ttl, wait, permits, is_retried, lasts };
        turn.shard.ask(ask as u64, request);
        Ok(())
    }

    fn members<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let (mut words, mut dry_run, mut yes) = (Vec::new(), false, false);
        for word in args {
            match std::str::from_utf8(word) {
                Ok(word) if word.eq_ignore_ascii_case("DRYRUN") => dry_run = true,
                Ok(word) if word.eq_ignore_ascii_case("YES") => yes = true,
                Ok(word) => words.push(word),
                Err(_) => return Err(ReplyError::Unexpected(word, Command::Members.usage())),
            }
        }
        let [action, nodes @ ..] = &words[..] else {
            return Err(ReplyError::Unexpected(args[0], Command::Members.usage()));
        };
        let change = MembersChange::parse(action, nodes.iter().copied());
        let change = change.map_err(|error| ReplyError::Redis(format!("MEMBERS {error}")))?;
        let ask = self.ask(turn, None, None)?;
        let request = MembersRequest { change, dry_run, yes };
        if turn.common.audit.is_on()
            && let Some(entry) = Entry::of_members(&request)
        {
            let entry = entry.by(&self.address, turn.common.rules.name(self.place()));
            turn.common.pending.get(ask).entry = Some(Box::new(entry));
        }
        turn.shard.ask(ask as u64, LeaseRequest::Members(Box::new(request)));
        Ok(())
    }

    /// Whether the client may acquire one more lease now. Returns its claim to that, if its token
    /// has a quota.
    pub(super) fn claim(
        &mut self,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Option<Claim>, ReplyError<'static>> {
        if self.is_ending {
            return Err(ReplyError::Ended);
        }
        let now = turn.shard.now();
        if let (Some(pace), Some(most)) =
            (&mut self.rate_limiter, turn.common.server.config.limits.acquires_per_second)
            && !pace.admits(now)
        {
            turn.common.tally.limited(now, Limit::AcquiresPerSecond, 1);
            return Err(ReplyError::AcquiresPerSecond(most));
        }
        let quotas = &turn.common.server.gate.quotas;
        let quota = turn.common.rules.quota(self.place());
        let claim = quota.map(|quota| quotas.claim(quota, now)).transpose();
        claim.map_err(ReplyError::Quota)
    }

    /// Notes a renewal, if the client's token has a quota.
    pub(super) fn renewal(
        &self,
        common: &Common,
        name: Name<'_>,
        fence: u64,
    ) -> Option<Box<Renewal>> {
        let quota = common.rules.quota(self.place())?;
        Some(Box::new(Renewal::new(&common.server.gate.quotas, quota, name, fence)))
    }

    fn release<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let (name, fence) = (name(args[0])?, fence(args[1])?);
        let (mut is_forced, mut is_durable) = (false, false);
        for option in &args[2..] {
            let flag = match option {
                _ if option.eq_ignore_ascii_case(b"FORCE") => &mut is_forced,
                _ if option.eq_ignore_ascii_case(b"DURABLE") => &mut is_durable,
                _ => return Err(ReplyError::Unexpected(option, Command::Release.usage())),
            };
            if std::mem::replace(flag, true) {
                return Err(ReplyError::Unexpected(option, Command::Release.usage()));
            }
        }
        if is_forced && let Some(count) = turn.common.notices.again(turn.shard.now()) {
            let (client, name) = (&self.address, name.as_str());
            tracing::warn!(client, name, fence, count, "leases are released by force");
        }
        let event = if is_forced { Event::ForceReleased } else { Event::Released };
        let ask = self.ask(turn, None, None)?;
        turn.common.ended(name, fence);
        if turn.common.audit.is_on() {
            let entry = self.entry(turn.common, event, name, Some(fence));
            turn.common.pending.get(ask).entry = Some(Box::new(entry));
        }
        let lease = name.into();
        turn.shard.ask(ask as u64, LeaseRequest::Release { lease, fence, is_durable });
        Ok(())
    }

    /// What goes to the audit log if a request succeeds.
    #[cold]
    pub(super) fn entry(
        &self,
        common: &Common,
        event: Event,
        name: Name<'_>,
        fence: Option<u64>,
    ) -> Entry {
        let token = common.rules.name(self.place());
        Entry::of(event, name.as_str(), fence).by(&self.address, token)
    }

    fn renew<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let (name, fence, ttl) = (name(args[0])?, fence(args[1])?, ttl(args[2])?);
        let lasts = match args.get(3) {
            None => None,
            Some(option) if option.eq_ignore_ascii_case(b"DURABLE") => Some(lasts(args[2])?),
            Some(option) => return Err(ReplyError::Unexpected(option, Command::Renew.usage())),
        };
        let ask = self.ask(turn, None, None)?;
        if turn.common.audit.is_on() {
            let entry = self.entry(turn.common, Event::Lost, name, Some(fence));
            turn.common.pending.get(ask).entry = Some(Box::new(entry));
        }
        let renewal = self.renewal(turn.common, name, fence);
        let asked = turn.common.pending.get(ask);
        asked.durable = lasts.map(|_| DurableRequest::Keep);
        asked.renewal = renewal;
        let lease = name.into();
        turn.shard.ask(
            ask as u64,
            match lasts {
                None => LeaseRequest::Renew { lease, fence, ttl },
                Some(lasts) => LeaseRequest::Keep { lease, fence, lasts },
            },
        );
        Ok(())
    }

    fn list<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let cursor = std::str::from_utf8(args[0]).ok().and_then(|text| text.parse::<Cursor>().ok());
        let cursor = cursor.ok_or(ReplyError::Number(args[0], "cursor; begin with 0"))?;
        let (mut pattern, mut count) = (pattern_of(b"*")?, COUNT);
        for option in args[1..].chunks(2) {
            let &[key, value] = option else {
                return Err(lone(option[0], &["MATCH", "COUNT"], Command::List));
            };
            if key.eq_ignore_ascii_case(b"MATCH") {
                pattern = pattern_of(value)?;
            } else if key.eq_ignore_ascii_case(b"COUNT") {
                let number = decimal(value).filter(|count| *count > 0);
                let number = number.ok_or(ReplyError::Number(value, "count above 0"))?;
                count = u32::try_from(number).unwrap_or(COUNT_MAX).min(COUNT_MAX);
            } else {
                return Err(ReplyError::Unexpected(key, Command::List.usage()));
            }
        }
        let prefix = pattern.prefix().ok_or(ReplyError::PatternNotPrefix)?;
        self.admit_read(turn, &pattern)?;
        let ask = self.ask(turn, None, None)?;
        self.listing = Some(ask);
        let (prefix, filter, max) =
            (prefix.into(), self.readable(turn.common), PageMax::leases(count));
        turn.shard.ask(ask as u64, LeaseRequest::List { cursor, prefix, filter, max });
        Ok(())
    }

    fn watch<'a>(&mut self, turn: &mut Turn<'_, '_>, pattern: &'a [u8]) -> Outcome<'a> {
        let watched = pattern_of(pattern)?;
        self.admit_read(turn, &watched)?;
        if !self.patterns.contains(&watched) {
            self.admit_watch(turn)?;
            let before = self.watched();
            self.patterns.push(watched);
            turn.common.watches(turn.shard, self.conn, before, before + 1);
        }
        self.reply_ok(turn.common);
        Ok(())
    }

    fn unwatch<'a>(&mut self, turn: &mut Turn<'_, '_>, pattern: Option<&'a [u8]>) -> Outcome<'a> {
        let before = self.watched();
        match pattern {
            None => self.patterns.clear(),
            Some(pattern) => {
                let pattern = pattern_of(pattern)?;
                self.patterns.retain(|known| *known != pattern);
            }
        }
        turn.common.watches(turn.shard, self.conn, before, self.watched());
        self.reply_ok(turn.common);
        Ok(())
    }

    fn hello<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let protocol = match args.first().copied() {
            None => self.protocol,
            Some(b"2") if self.is_notifying() => return Err(ReplyError::StillNotifying),
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(_) => return Err(ReplyError::NoProtocol),
        };
        let mut rest = args.get(1..).unwrap_or_default();
        let (mut name, mut token) = (None, None);
        let mut follows = self.follows && protocol == Protocol::Resp3;
        while let [key, more @ ..] = rest {
            match more {
                _ if key.eq_ignore_ascii_case(b"FOLLOW") && protocol == Protocol::Resp3 => {
                    follows = true;
                    rest = more;
                }
                [_, shown, more @ ..] if key.eq_ignore_ascii_case(b"AUTH") => {
                    token = Some(*shown);
                    rest = more;
                }
                [value, more @ ..] if key.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(client_name(value)?);
                    rest = more;
                }
                _ => return Err(ReplyError::Unexpected(key, Command::Hello.usage())),
            }
        }
        if let Some(token) = token {
            self.authenticate(turn, token)?;
        }
        if let Some(name) = name {
            self.rename(name);
        }
        (self.protocol, self.follows) = (protocol, follows);
        let (server, id) = (std::sync::Arc::clone(&turn.common.server), self.id);
        let mut members = turn.shard.member_addresses();
        if self.is_unauthenticated(turn.common) {
            members.1.clear();
        }
        self.reply(turn.common, |protocol, out| server.put_hello(id, &members, protocol, out));
        Ok(())
    }

    fn client<'a>(&mut self, common: &mut Common, args: &[&'a [u8]]) -> Outcome<'a> {
        let is = |name: &str| args[0].eq_ignore_ascii_case(name.as_bytes());
        match args.len() {
            1 if is("ID") => {
                let id = self.id.cast_signed();
                self.reply(common, |_, out| put_integer(out, id));
            }
            1 if is("GETNAME") => {
                let name = self.name.clone();
                self.reply(common, |protocol, out| match name.as_str() {
                    "" => protocol.put_null(out),
                    name => put_bulk(out, name.as_bytes()),
                });
            }
            2 if is("SETNAME") => {
                self.rename(client_name(args[1])?);
                self.reply_ok(common);
            }
            // Libraries describe themselves, or set options of a cache, which this node is not.
            1 if is("LIST") || is("INFO") => {
                let line = self.line();
                self.reply(common, |_, out| put_bulk(out, line.as_bytes()));
            }
            3 if is("SETINFO") => self.reply_ok(common),
            2 if is("NO-EVICT") || is("NO-TOUCH") => self.reply_ok(common),
            _ => return Err(ReplyError::Unexpected(args[0], Command::Client.usage())),
        }
        Ok(())
    }

    /// This connection in the form of CLIENT LIST. A client sees no other connection.
    fn line(&self) -> String {
        let Self { id, address, name, database, protocol, .. } = self;
        let resp = protocol.number();
        format!("id={id} addr={address} name={name} db={database} resp={resp}\n")
    }

    fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        if name.is_empty() { &self.address } else { name }.clone_into(&mut self.holder);
    }

    fn reset(&mut self, turn: &mut Turn<'_, '_>) {
        self.stop_pushes(turn);
        self.forget_token(turn);
        self.rename("");
        self.database = 0;
        (self.protocol, self.follows) = (Protocol::default(), false);
        self.reply(turn.common, |_, out| put_simple(out, &"RESET"));
    }
}

struct AcquireRequest<'a> {
    name: Name<'a>,
    ttl: Duration,
    holder: Option<Holder<'a>>,
    wait: Duration,
    permits: Option<Permits>,
    notify: Option<&'a [u8]>,
    /// Set for a durable lease.
    lasts: Option<Lasts>,
}

impl<'a> AcquireRequest<'a> {
    fn parse(args: &[&'a [u8]]) -> Result<Self, ReplyError<'a>> {
        let (mut holder, mut wait, mut permits, mut notify) = (None, None, None, None);
        let (mut options, mut is_durable) = (&args[2..], false);
        while let [key, rest @ ..] = options {
            if key.eq_ignore_ascii_case(b"DURABLE") && !is_durable {
                (is_durable, options) = (true, rest);
                continue;
            }
            let [value, rest @ ..] = rest else {
                return Err(lone(key, &["HOLDER", "WAIT", "PERMITS", "NOTIFY"], Command::Acquire));
            };
            options = rest;
            let (key, value) = (*key, *value);
            let before = if key.eq_ignore_ascii_case(b"HOLDER") {
                holder.replace(value)
            } else if key.eq_ignore_ascii_case(b"WAIT") {
                wait.replace(value)
            } else if key.eq_ignore_ascii_case(b"PERMITS") {
                permits.replace(value)
            } else if key.eq_ignore_ascii_case(b"NOTIFY") {
                notify.replace(value)
            } else {
                Some(key)
            };
            if before.is_some() {
                return Err(ReplyError::Unexpected(key, Command::Acquire.usage()));
            }
        }
        if notify.is_some() && wait.is_none() {
            return Err(ReplyError::NotifyNeedsWait);
        }
        if notify.is_some_and(|id: &[u8]| id.is_empty() || id.len() > NOTIFY_ID_LEN_MAX) {
            return Err(ReplyError::NotifyId(NOTIFY_ID_LEN_MAX));
        }
        if is_durable && permits.is_some() {
            return Err(ReplyError::DurablePermit);
        }
        Ok(Self {
            name: name(args[0])?,
            ttl: ttl(args[1])?,
            lasts: if is_durable { Some(lasts(args[1])?) } else { None },
            holder: holder.map(Holder::from_utf8).transpose().map_err(ReplyError::Holder)?,
            wait: wait.map(patience).transpose()?.unwrap_or_default(),
            permits: permits.map(permits_of).transpose()?,
            notify,
        })
    }

    fn holder_or<'b>(&self, own: &'b str) -> Holder<'b>
    where
        'a: 'b,
    {
        self.holder.or(Holder::new(own).ok()).unwrap_or(Holder::NONE)
    }
}

/// The error for the last argument, if it has no partner: an option without its value, or a word
/// too many.
fn lone<'a>(argument: &'a [u8], options: &[&str], command: Command) -> ReplyError<'a> {
    if options.iter().any(|option| argument.eq_ignore_ascii_case(option.as_bytes())) {
        ReplyError::NoValue(argument, command.usage())
    } else {
        ReplyError::Unexpected(argument, command.usage())
    }
}

fn name(bytes: &[u8]) -> Result<Name<'_>, ReplyError<'_>> {
    Name::from_bytes(bytes).map_err(ReplyError::Name)
}

fn pattern_of(bytes: &[u8]) -> Result<NamePattern, ReplyError<'static>> {
    let text = std::str::from_utf8(bytes).map_err(|_| PatternError);
    text.and_then(str::parse).map_err(ReplyError::Pattern)
}

fn ttl(bytes: &[u8]) -> Result<Duration, ReplyError<'_>> {
    decimal(bytes).map(Duration::from_millis).ok_or(ReplyError::Ttl(bytes))
}

fn lasts(bytes: &[u8]) -> Result<Lasts, ReplyError<'_>> {
    decimal(bytes).map(lasting).ok_or(ReplyError::Ttl(bytes))
}

fn fence(bytes: &[u8]) -> Result<u64, ReplyError<'_>> {
    decimal(bytes).filter(|fence| i64::try_from(*fence).is_ok()).ok_or(ReplyError::Fence(bytes))
}

fn permits_of(bytes: &[u8]) -> Result<Permits, ReplyError<'_>> {
    let permits = decimal(bytes).and_then(Permits::new);
    permits.ok_or(ReplyError::Number(bytes, "number of PERMITS; expected 1 to 64"))
}

/// Up to 49 days, longer than any process should count on.
fn patience(bytes: &[u8]) -> Result<Duration, ReplyError<'_>> {
    let millis = decimal(bytes).and_then(|millis| u32::try_from(millis).ok());
    let expected = "time to WAIT; expected milliseconds, at most 4294967295";
    millis
        .map(|millis| Duration::from_millis(millis.into()))
        .ok_or(ReplyError::Number(bytes, expected))
}

/// Digits only, as RESP writes numbers. The standard library parses only `str`.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    rest.iter()
        .try_fold(digit(first)?, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

/// The name of a client, which is also the holder of its leases.
fn client_name(bytes: &[u8]) -> Result<&str, ReplyError<'_>> {
    let name = std::str::from_utf8(bytes).ok();
    let name = name.filter(|name| !name.contains(|c: char| c.is_control() || c.is_whitespace()));
    let name = name.filter(|name| name.len() <= CLIENT_NAME_LEN_MAX);
    name.ok_or(ReplyError::ClientName(CLIENT_NAME_LEN_MAX))
}
