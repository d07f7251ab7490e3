//! The words of a transcript: how commands are read, and how messages and events are written.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::cell::{NAME, name, node};
use paxoslease_core::*;

const OPTIONS: &str = "ballots counter deferred_max down entries_max held holder name promised \
                       lasts rounds_max text_bytes_max ttl wait waiters_max without";

/// The words of a command, and its options of the form `key=value`.
pub(crate) struct Command<'a> {
    pub(crate) words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        let (options, words): (Vec<_>, Vec<_>) =
            line.split_whitespace().partition(|word| word.contains('='));
        let options: BTreeMap<_, _> =
            options.into_iter().filter_map(|option| option.split_once('=')).collect();
        let is_known = |key: &str| OPTIONS.split(' ').any(|known| known == key);
        let unknown = options.keys().find(|key| !is_known(key));
        assert_eq!(unknown, None, "an unknown option in: {line}");
        Self { words, options }
    }

    pub(crate) fn option(&self, key: &str) -> Option<&'a str> {
        self.options.get(key).copied()
    }

    pub(crate) fn number(&self, key: &str, default: usize) -> usize {
        self.option(key).map_or(default, |word| word.parse().expect("a number"))
    }

    pub(crate) fn span(&self, key: &str, default: Duration) -> Duration {
        self.option(key).map_or(default, span)
    }

    pub(crate) fn name(&self) -> Name<'a> {
        name(self.option("name").unwrap_or(NAME))
    }

    pub(crate) fn holder(&self, default: &'a str) -> Holder<'a> {
        Holder::new(self.option("holder").unwrap_or(default)).expect("short")
    }
}

/// The id of a node, as in `n2`.
pub(crate) fn id(word: &str) -> Option<u16> {
    word.strip_prefix('n')?.parse().ok()
}

pub(crate) fn node_of(word: &str) -> NodeId {
    node(id(word).unwrap_or_else(|| panic!("{word} is not a node")))
}

/// A span such as `10s`, `3ms`, `49999us` or `1ns`.
pub(crate) fn span(word: &str) -> Duration {
    let unit = word.find(|letter: char| !letter.is_ascii_digit()).expect("a unit");
    let count: u64 = word[..unit].parse().expect("a count");
    match &word[unit..] {
        "s" => Duration::from_secs(count),
        "ms" => Duration::from_millis(count),
        "us" => Duration::from_micros(count),
        "ns" => Duration::from_nanos(count),
        unit => panic!("unknown unit {unit}"),
    }
}

/// A ballot such as `5.2`, the counter 5 of node 2.
pub(crate) fn ballot(word: &str) -> Ballot {
    let (counter, node) = word.split_once('.').expect("counter.node");
    let (counter, node): (u64, u64) = (counter.parse().expect("u64"), node.parse().expect("u64"));
    Ballot::from_u64(counter << 10 | node).expect("63 bits")
}

/// A tenure such as `t5.2`.
pub(crate) fn tenure(word: &str) -> Tenure {
    let number = word.strip_prefix('t').expect("a tenure begins with t");
    Tenure::of(ballot(number)).expect("a node's ballot")
}

pub(crate) fn message(message: &Message<'_>) -> String {
    match message {
        Message::Request(request) => {
            let name = request.name();
            let of = if name == self::name(NAME) { String::new() } else { format!(" of {name}") };
            format!("{}{of}", self::request(request))
        }
        Message::Reply(reply) => self::reply(reply),
        Message::Durable(message) => format!("{message:?}"),
        Message::Hint(Hint::Held { seen, .. }) => format!("Held{}", self::seen(Some(*seen))),
        Message::Hint(Hint::Note { name, text }) => format!("Note {text:?} for {name}"),
        Message::Hint(Hint::Freed { nodes_before, .. }) => {
            format!("Freed, {nodes_before} nodes before")
        }
    }
}

fn request(request: &Request<'_>) -> String {
    match request {
        Request::Prepare { ballot, .. } => format!("Prepare {ballot}"),
        Request::Propose { ballot, ttl, .. } => format!("Propose {ballot} for {ttl}"),
        Request::Renew { tenure, ballot, ttl, .. } => {
            format!("Renew {tenure} under {ballot} for {ttl}")
        }
        Request::Heal { tenure, ballot, ttl, .. } => {
            format!("Heal {tenure} under {ballot} for {ttl}")
        }
        Request::Release { tenure, .. } => format!("Release {tenure}"),
        Request::Inspect { query, .. } => format!("Inspect #{query}"),
    }
}

fn reply(reply: &Reply<'_>) -> String {
    match *reply {
        Reply::Promise { ballot, accepted } => format!("Promise {ballot}{}", seen(accepted)),
        Reply::Accept { ballot } => format!("Accept {ballot}"),
        Reply::Reject { ballot, promised, accepted } => {
            format!("Reject {ballot}, promised {promised}{}", seen(accepted))
        }
        Reply::NotHeld { ballot, promised } => format!("NotHeld {ballot}, promised {promised}"),
        Reply::Released { tenure, by } => {
            let found = match by {
                None => ", had no such lease",
                Some(id) if id.as_u64() == 0 => ", may have forgotten it",
                Some(_) => "",
            };
            format!("Released {tenure}{found}")
        }
        Reply::Inspected { query, accepted, .. } => {
            format!("Inspected #{query}{}", seen(accepted))
        }
        Reply::Healed { ballot } => format!("Healed {ballot}"),
        Reply::NotHealed { ballot, promised } => {
            format!("NotHealed {ballot}, promised {promised}")
        }
    }
}

fn seen(accepted: Option<Seen<'_>>) -> String {
    accepted
        .map_or(String::new(), |seen| format!(", held by {} for {}", seen.tenure, seen.remaining))
}

pub(crate) fn sighting(sighting: &Sighting) -> String {
    let Sighting { tenure, remaining, label } = sighting;
    format!("held by {tenure} {:?} for {remaining}", label.holder())
}

pub(crate) fn lease(lease: &LiveLease) -> String {
    let LiveLease { seen, durable } = lease;
    let durable = durable.map_or(String::new(), |lasts| format!(", durable for {lasts:?}"));
    format!("{}{durable}", sighting(seen))
}

/// Who hears of an event, and what. Instants are given as spans since `began_at`.
pub(crate) fn event(event: &Event, began_at: Instant) -> (String, String) {
    let from = |at: &Instant| format!("from {} ms", at.since(began_at).as_millis());
    let what = match event {
        Event::Granted { tenure, ttl, waited, started_at, .. } => {
            let after = if waited.is_zero() { String::new() } else { format!(" after {waited:?}") };
            format!("granted {tenure} for {ttl} {}{after}", from(started_at))
        }
        Event::Denied { by, .. } => format!("denied, {}", sighting(by)),
        Event::NoQuorum { .. } => "no quorum".to_owned(),
        Event::Renewed { tenure, ttl, started_at, .. } => {
            format!("renewed {tenure} for {ttl} {}", from(started_at))
        }
        Event::Kept { .. } | Event::NotKept { .. } | Event::Durable { .. } => format!("{event:?}"),
        Event::NoteHint(label) => format!("{}: note {:?}", label.name(), label.holder()),
        Event::NotHeld { tenure, .. } => format!("not held, {tenure} is over"),
        Event::Released { held, confirmed, .. } => {
            let held = match held {
                Some(true) => "",
                Some(false) => ", was not held",
                None if *confirmed => ", perhaps by another",
                None => "",
            };
            format!("released{held}{}", if *confirmed { "" } else { ", unconfirmed" })
        }
        Event::Inspected { accepted, .. } => accepted.as_deref().map_or("free".to_owned(), lease),
        Event::Persist(record) => format!("write: {}", self::record(*record)),
        Event::HeldHint(seen) => format!("{}: {}", seen.label.name(), sighting(seen)),
        Event::FreedHint { label, .. } => format!("{}: freed", label.name()),
        Event::ExpiredHint { label, tenure } => format!("{}: {tenure} expired", label.name()),
    };
    let whom = match (event, event.token()) {
        (_, Some(token)) => format!("#{}", token.0),
        (Event::Persist(_), None) => "disk".to_owned(),
        (_, None) => "watcher".to_owned(),
    };
    (whom, what)
}

pub(crate) fn record(record: Record) -> String {
    let leases = record.lease_ceiling.map_or("none".to_owned(), |ttl| format!("up to {ttl}"));
    format!("ballots up to {}, leases {leases}", record.ballot_ceiling)
}
