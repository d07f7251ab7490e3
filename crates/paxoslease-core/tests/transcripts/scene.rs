//! A cell that writes a transcript: the time, sender, receiver and content of every message, and
//! every event.

use core::fmt::Write as _;
use core::time::Duration;

use crate::cell::{Letter, NAME, TTL, TestCell, name, node};
use paxoslease_core::*;

const HOP: Duration = Duration::from_millis(1);

pub(crate) struct Scene {
    cell: TestCell,
    began_at: Instant,
    /// How many events are in the transcript already.
    told: usize,
    tokens: u64,
    dead: Vec<NodeId>,
    lines: String,
}

impl Scene {
    pub(crate) fn new(members: u16) -> Self {
        Self::of(TestCell::new(members, 0))
    }

    /// With disks that write at once, and with a lease ceiling that admits the leases of the scene.
    pub(crate) fn with_disks(members: u16) -> Self {
        let mut cell = TestCell::with_disks(members, 0);
        let tenure = cell.acquire_and_release();
        cell.events.clear();
        let mut scene = Self::of(cell);
        let _ = writeln!(scene.lines, "(nodes with disks; {tenure} came and went)");
        scene
    }

    fn of(cell: TestCell) -> Self {
        let began_at = cell.now;
        let lines = String::new();
        Self { cell, began_at, told: 0, tokens: 0, dead: Vec::new(), lines }
    }

    pub(crate) fn transcript(self) -> String {
        self.lines
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.line("--", text);
    }

    /// A client requests the lease through a node.
    pub(crate) fn acquire(&mut self, id: u16, wait: Duration) {
        let waits = if wait.is_zero() { String::new() } else { format!(", waits up to {wait:?}") };
        self.command(id, &format!("acquire for {TTL:?}{waits}"));
        self.tokens += 1;
        self.cell.acquire(id, self.tokens, wait);
        self.events();
    }

    /// Acquires the lease without a contender.
    pub(crate) fn acquired(&mut self, id: u16) -> Tenure {
        self.acquire(id, Duration::ZERO);
        self.hops(2);
        self.cell.granted(self.tokens).expect("no other request")
    }

    pub(crate) fn renew(&mut self, id: u16, tenure: Tenure) {
        self.command(id, &format!("renew {tenure} for {TTL:?}"));
        self.tokens += 1;
        self.cell.renew(id, self.tokens, tenure, TTL);
        self.events();
    }

    pub(crate) fn release(&mut self, id: u16, tenure: Tenure) {
        self.command(id, &format!("release {tenure}"));
        self.tokens += 1;
        self.cell.release(id, self.tokens, tenure);
        self.events();
    }

    /// The last client leaves.
    pub(crate) fn abandon(&mut self, id: u16) {
        self.command(id, "is gone");
        let now = self.cell.now;
        self.cell.shard(id).abandon(now, name(NAME), Token(self.tokens));
        self.cell.collect();
        self.events();
    }

    pub(crate) fn crash(&mut self, id: u16) {
        self.cell.crash(id);
        let quarantine = self.cell.quarantine(id);
        self.line(&format!("n{id}"), &format!("crashes, starts, quarantined for {quarantine:?}"));
        self.cell.write_records();
        self.events();
    }

    pub(crate) fn restart(&mut self, id: u16, down: Duration) {
        self.line(&format!("n{id}"), "stops cleanly");
        let restored = self.cell.restart(id, down);
        let how = if restored { "from its snapshot" } else { "as after a crash" };
        self.line(&format!("n{id}"), &format!("starts {how}"));
        self.cell.write_records();
        self.events();
    }

    /// From now on, no message reaches or leaves a node.
    pub(crate) fn dead(&mut self, id: u16) {
        self.line(&format!("n{id}"), "dies");
        self.dead.push(node(id));
    }

    /// Passes time in one step.
    pub(crate) fn skip(&mut self, span: Duration) {
        self.cell.pass(span);
        self.events();
    }

    /// Delivers all messages in flight, `count` times.
    pub(crate) fn hops(&mut self, count: usize) {
        for _ in 0..count {
            self.cell.pass(HOP);
            self.events();
            let dead = self.dead.clone();
            self.cell.take(|letter| dead.contains(&letter.from) || dead.contains(&letter.to));
            for letter in self.cell.take(|_| true) {
                let outcome = self.cell.deliver(&letter);
                self.cell.write_records();
                let dropped =
                    outcome.err().map_or(String::new(), |refusal| format!(" (dropped: {refusal})"));
                let who = format!("{:?} -> {:?}", letter.from, letter.to);
                self.line(&who, &format!("{}{dropped}", words(&letter)));
                self.events();
            }
        }
    }

    /// Delivers messages until 300 ms pass without one.
    pub(crate) fn until_quiet(&mut self) {
        let mut silent = 0;
        while silent < 300 {
            let before = self.lines.len();
            self.hops(1);
            silent = if self.lines.len() == before { silent + 1 } else { 0 };
        }
    }

    fn command(&mut self, id: u16, text: &str) {
        self.line(&format!("client -> n{id}"), text);
    }

    fn events(&mut self) {
        for (at, event) in self.cell.events.split_off(self.told) {
            if let Some(text) = what_happened(&event) {
                self.line(&format!("{at:?} => client"), &text);
            }
            self.cell.events.push((at, event));
        }
        self.told = self.cell.events.len();
    }

    fn line(&mut self, who: &str, what: &str) {
        let millis = self.cell.now.since(self.began_at).as_millis();
        let _ = writeln!(self.lines, "{millis:>6} ms  {who:<12}  {what}");
    }
}

impl TestCell {
    fn acquire_and_release(&mut self) -> Tenure {
        self.acquire(1, 0, Duration::ZERO);
        for _ in 0..4 {
            self.settle();
            self.write_records();
        }
        let tenure = self.granted(0).expect("no other request");
        self.release(1, 0, tenure);
        self.settle();
        self.pass(Duration::from_secs(1));
        tenure
    }
}

fn words(letter: &Letter) -> String {
    match letter.transmit.message() {
        Message::Request(request) => match request {
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
        },
        Message::Reply(reply) => match reply {
            Reply::Promise { ballot, accepted } => format!("Promise {ballot}{}", seen(accepted)),
            Reply::Accept { ballot } => format!("Accept {ballot}"),
            Reply::Reject { ballot, promised, accepted } => {
                format!("Reject {ballot}, promised {promised}{}", seen(accepted))
            }
            Reply::NotHeld { ballot, promised } => format!("NotHeld {ballot}, promised {promised}"),
            Reply::Released { tenure, held } => {
                format!("Released {tenure}{}", if held { "" } else { ", had no such lease" })
            }
            Reply::Inspected { query, accepted } => format!("Inspected #{query}{}", seen(accepted)),
        },
        Message::Hint(_) => letter.kind().to_owned(),
    }
}

fn seen(accepted: Option<Seen<'_>>) -> String {
    accepted
        .map_or(String::new(), |seen| format!(", held by {} for {}", seen.tenure, seen.remaining))
}

fn what_happened(event: &Event) -> Option<String> {
    Some(match event {
        Event::Granted { tenure, waited, .. } => {
            let after = if waited.is_zero() { String::new() } else { format!(" after {waited:?}") };
            format!("granted: fence {tenure}{after}")
        }
        Event::Denied { by, .. } => format!("denied: held by {} for {}", by.tenure, by.remaining),
        Event::NoQuorum { .. } => "no quorum".to_owned(),
        Event::Renewed { tenure, .. } => format!("renewed: fence {tenure}"),
        Event::NotHeld { tenure, .. } => format!("not held: {tenure} is over"),
        Event::Released { confirmed, .. } => {
            format!("released{}", if *confirmed { "" } else { ", unconfirmed" })
        }
        Event::Inspected { .. } | Event::Persist(_) => return None,
        Event::HeldHint(_) | Event::FreedHint(_) | Event::ExpiredHint { .. } => return None,
    })
}
