//! Plays transcripts. A scene begins with a line `=== title`. A sentence after `#` says what must
//! be true. Every other line without an indent is a command, and indented lines are its outcome.
//!
//! ```text
//! cell M +P OPTIONS     M members and P nodes that only propose; without this command, 3 members.
//!                       Options: see `Scene::with_cell`
//! n1 acquire OPTIONS    also renew, release, abandon, inspect; their numbers are #1, #2, ..
//!                       `last` is the tenure that was granted last
//! n1 crash              also restart, sweep, hints of the network, ..: see `Scene::housekeep`
//! all watched           the same for every node
//! n1 rounds             shows something of a node: see `show.rs`
//! n2 -> n1 MESSAGE      hands a message to n1 as if n2 had sent it: see `forge.rs`
//! deliver FILTER        each message in flight that matches, once; also lose, and keep LABEL
//! deliver LABEL         the messages that were kept under a label; repeat keeps them
//! split n1 n2           no message passes between these nodes and the others
//! settle                delivers everything, and what follows from it; write: all records
//! pass 5ms              moves the time and wakes every node; jump wakes no node
//! run 5ms               1 ms at a time, and settles; `losing FILTER` loses some, `lost` all,
//!                       and `lost shown` shows what it loses
//! hops 2, until quiet   1 ms at a time, delivers what is in flight and shows it
//! 3 times: A; B         repeats commands; {i} in them is 1, then 2, then 3
//! ```
//!
//! A filter is a kind of message, `to n1` and `from n2`, each optional.

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use crate::cell::{Letter, MS, NO_WAIT, TTL, TestCell};
use crate::words::{self, Command, id, node_of, span, tenure};
use paxoslease_core::*;

pub(crate) struct Scene {
    pub(crate) cell: TestCell,
    pub(crate) began_at: Instant,
    /// How many events are in the transcript already.
    told: usize,
    /// The number of the last request.
    tokens: u64,
    kept: BTreeMap<String, Vec<Letter>>,
    /// No message passes between these nodes and the others.
    apart: Vec<NodeId>,
    /// Every record is written as soon as a node asks for it.
    writes_at_once: bool,
    lines: String,
}

/// Plays every scene of a file below `tests` and compares the outcomes with those in the file.
/// `without` gives a cell with the option of this name its rules.
pub(crate) fn check(file: &str, without: fn(&str) -> Rules) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let expected = fs::read_to_string(&path).expect("a transcript");
    let played = play(&expected, without);
    if env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(&path, played).expect("the transcript can be written");
        return;
    }
    let mut differences = String::new();
    for (played, expected) in played.split("\n=== ").zip(expected.split("\n=== ")) {
        let mut lines = played.lines().zip(expected.lines());
        if played != expected {
            let (title, _) = played.split_once('\n').unwrap_or((played, ""));
            let (played, expected) = lines.find(|(one, other)| one != other).unwrap_or_default();
            let _ =
                writeln!(differences, "{title}\n  expected {expected:?}\n  played   {played:?}");
        }
    }
    assert!(differences.is_empty(), "{file}:\n{differences}");
}

/// Plays all scenes of a text, and returns it with the outcomes of this run.
fn play(text: &str, without: fn(&str) -> Rules) -> String {
    let mut played = String::new();
    let mut scene = Scene::new(TestCell::new(3, 0), false);
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        if let Some(title) = line.strip_prefix("=== ") {
            eprintln!("{title}");
            scene = Scene::new(TestCell::new(3, 0), false);
        }
        let _ = writeln!(played, "{line}");
        if line.starts_with("cell ") {
            scene = Scene::with_cell(&Command::new(line), without);
            scene.events();
        } else if !line.is_empty() && !line.starts_with(['#', '=']) {
            scene.command(line);
        }
        played.push_str(&std::mem::take(&mut scene.lines));
    }
    played
}

impl Scene {
    fn new(cell: TestCell, writes_at_once: bool) -> Self {
        Self {
            began_at: cell.now,
            cell,
            told: 0,
            tokens: 0,
            kept: BTreeMap::new(),
            apart: Vec::new(),
            writes_at_once,
            lines: String::new(),
        }
    }

    fn command(&mut self, line: &str) {
        let command = Command::new(line);
        match command.words[..] {
            [count, "times:", ..] => {
                let (_, commands) = line.split_once(": ").expect("commands");
                for i in 1..=count.parse::<u32>().expect("a count") {
                    let commands = commands.replace("{i}", &i.to_string());
                    commands.split("; ").for_each(|command| self.command(command));
                }
            }
            [from, "->", to, ..] => self.forge(from, to, &command),
            ["all", ..] => {
                for id in 1..=self.cell.shards.len() {
                    self.command(&line.replacen("all", &format!("n{id}"), 1));
                }
            }
            [who, verb, ..] if id(who).is_some() => {
                let id = id(who).expect("checked");
                let known = self.request(id, verb, &command)
                    || self.housekeep(id, verb, &command)
                    || self.show(id, verb, &command);
                assert!(known, "unknown command: {line}");
            }
            _ => assert!(self.network(&command.words), "unknown command: {line}"),
        }
        if self.writes_at_once {
            self.cell.write_records();
        }
        self.events();
    }

    /// Options: `disk` for nodes whose first records are written, `blank-disk` for nodes without
    /// records, `write-at-once` for disks that need no `write`, `prepared` for the paper's two
    /// phases, settings, and `without=` a rule.
    fn with_cell(command: &Command<'_>, without: fn(&str) -> Rules) -> Self {
        let has = |option: &str| command.words.contains(&option);
        let proposers = command.words.iter().find_map(|word| word.strip_prefix('+'));
        let count = |word: &str| word.parse().expect("a count");
        let (members, proposers) = (count(command.words[1]), proposers.map_or(0, count));
        let adjust = |config: &mut Config| {
            let limits = &mut config.limits;
            limits.rounds_max = command.number("rounds_max", limits.rounds_max);
            limits.waiters_max = command.number("waiters_max", limits.waiters_max);
            limits.entries_max = command.number("entries_max", limits.entries_max);
            limits.text_bytes_max = command.number("text_bytes_max", limits.text_bytes_max);
            limits.deferred_max = command.number("deferred_max", limits.deferred_max);
            config.direct_rounds = !has("prepared");
            config.rules = command.option("without").map_or(Rules::ALL, without);
        };
        let counter = command.number("counter", 0) as u64;
        let start = Start::NewCell { counter, disk: has("disk") || has("blank-disk") };
        let mut cell = TestCell::started(members, proposers, adjust, start);
        cell.collect();
        if has("disk") {
            cell.write_records();
            cell.events.clear();
        }
        Self::new(cell, has("write-at-once"))
    }

    fn request(&mut self, id: u16, verb: &str, command: &Command<'_>) -> bool {
        let (now, name) = (self.cell.clock(id), command.name());
        let ttl = command.span("ttl", TTL);
        let token = Token(self.tokens + 1);
        let tenure = matches!(verb, "renew" | "release").then(|| match command.words[2] {
            "last" => self.cell.last_granted(),
            word => tenure(word),
        });
        let before = self.cell.state(id);
        let shard = self.cell.shard(id);
        let outcome = match (verb, tenure) {
            ("acquire", None) => {
                let (holder, wait) = (command.holder("me"), command.span("wait", NO_WAIT));
                shard.acquire(now, Acquire { token, name, holder, ttl, wait })
            }
            ("renew", Some(tenure)) => {
                let holder = command.holder("");
                shard.renew(now, Renew { token, name, holder, tenure, ttl })
            }
            ("release", Some(tenure)) => shard.release(now, token, name, tenure, ttl),
            ("inspect", None) => shard.inspect(now, token, name),
            ("abandon", None) => {
                let request = command.words[2].strip_prefix('#').expect("a request");
                let token = Token(request.parse().expect("a number"));
                let was_open = shard.abandon(now, name, token);
                self.outcome(if was_open { "was open" } else { "was not open" });
                self.cell.collect();
                return true;
            }
            _ => return false,
        };
        self.tokens += 1;
        self.cell.collect();
        if let Err(error) = outcome {
            self.outcome(&format!("#{} refused: {error}", token.0));
            assert_eq!(self.cell.state(id), before, "a refused command changes nothing");
            assert!(self.cell.answers(token.0).is_empty());
        }
        true
    }

    /// What the program around a shard does: restarts, sweeps, hints of the network.
    fn housekeep(&mut self, id: u16, verb: &str, command: &Command<'_>) -> bool {
        let now = self.cell.clock(id);
        let arguments = command.words.get(2..).unwrap_or_default();
        let nodes: Vec<NodeId> = arguments
            .iter()
            .filter(|word| word.starts_with('n'))
            .map(|word| node_of(word))
            .collect();
        let members =
            nodes.iter().filter_map(|node| self.cell.shards[0].config().cell.member(*node));
        let members = members.fold(MemberSet::EMPTY, MemberSet::with);
        let shard = self.cell.shard(id);
        match (verb, arguments) {
            ("crash", []) => self.cell.crash(id),
            ("forget", []) => {
                let (config, longest) = (shard.config().clone(), shard.config().cell.max_lease());
                let counter = command.number("counter", 0) as u64;
                let start = Start::NoRecord { counter, longest, disk: false };
                *shard = Shard::start(config, now, start);
            }
            ("restart", []) => {
                let restored = self.cell.restart(id, command.span("down", NO_WAIT));
                let how = if restored { "from its snapshot" } else { "as after a crash" };
                self.outcome(&format!("starts {how}"));
            }
            ("wakes", []) => shard.handle_timeout(now),
            ("ahead", [by]) => drop(self.cell.ahead.insert(id, span(by))),
            ("sweep", [slots]) => shard.sweep(now, slots.parse().expect("a count")),
            ("keep_up", [slots]) => shard.keep_up(now, slots.parse().expect("a count")),
            ("watched", []) => shard.set_watched(true),
            ("notes", []) => shard.note(command.name(), command.holder("")),
            ("learners", _) => shard.set_learners(nodes),
            ("reaches", _) => shard.set_reachable(now, members),
            ("reconnect", _) => shard.handle_reconnect(now, members),
            ("round_trip", [trip]) => shard.set_round_trip(span(trip)),
            ("turn_trip", [trip]) => shard.set_turn_trip(span(trip)),
            ("reclaim_trip", [trip]) => shard.set_reclaim_trip(span(trip)),
            ("observe", [counter]) => {
                shard.observe_counter(counter.parse().expect("a counter")).expect("in bounds");
            }
            ("bound", [bound]) => shard.set_counter_bound(bound.parse().expect("a counter")),
            ("heard", [_, rest @ ..]) => {
                shard.heard_counter(nodes[0], !rest.contains(&"forgetful"));
            }
            ("written", []) => {
                let ballot_ceiling = command.number("ballots", 0) as u64;
                shard.record_written(now, Record { ballot_ceiling, lease_ceiling: None });
            }
            _ => return false,
        }
        self.cell.collect();
        true
    }

    fn network(&mut self, words: &[&str]) -> bool {
        match words {
            ["settle"] => self.settle(),
            ["split", nodes @ ..] => self.apart = nodes.iter().map(|node| node_of(node)).collect(),
            ["write"] => self.cell.write_records(),
            ["lose", filter @ ..] => {
                for letter in self.lose(filter) {
                    self.outcome(&route(&letter));
                }
            }
            ["keep", label, filter @ ..] => {
                let letters = self.lose(filter);
                for letter in &letters {
                    self.outcome(&route(letter));
                }
                self.kept.entry((*label).to_owned()).or_default().extend(letters);
            }
            ["repeat", label] => {
                let letters = self.kept[*label].clone();
                self.deliver(letters);
            }
            ["deliver", label] if self.kept.contains_key(*label) => {
                let letters = self.kept.remove(*label).unwrap_or_default();
                self.deliver(letters);
            }
            ["deliver", filter @ ..] => {
                let letters = self.lose(filter);
                if letters.is_empty() {
                    self.outcome("nothing to deliver");
                }
                self.deliver(letters);
            }
            ["letters"] => {
                let letters: Vec<String> = self.cell.letters.iter().map(route).collect();
                self.outcome(&format!("{} in flight", letters.len()));
                letters.iter().for_each(|letter| self.outcome(letter));
            }
            ["leases"] => self.leases(),
            ["belief", request] => self.belief(request),
            ["sent"] => {
                let sent = std::mem::take(&mut self.cell.sent);
                self.outcome(&format!("{sent} messages"));
            }
            _ => return self.time(words),
        }
        true
    }

    fn time(&mut self, words: &[&str]) -> bool {
        match words {
            ["pass", time] => self.cell.pass(span(time)),
            ["jump", "to", "the", "end"] => self.cell.now = Instant::MAX,
            ["jump", time] => self.cell.now = self.cell.now.after(span(time)),
            ["run", time, rest @ ..] => {
                for _ in 0..span(time).as_millis() {
                    self.cell.pass(MS);
                    match rest {
                        ["lost"] => self.cell.letters.clear(),
                        ["lost", "shown"] => {
                            for letter in self.lose(&[]) {
                                self.message_line(&letter, Ok(()));
                            }
                        }
                        ["losing", filter @ ..] => drop(self.lose(filter)),
                        _ => {}
                    }
                    self.settle();
                    self.events();
                }
            }
            ["hops", count] => self.hops(count.parse().expect("a count")),
            ["until", "quiet"] => {
                let mut silent = 0;
                while silent < 300 {
                    let before = self.lines.len();
                    self.hops(1);
                    silent = if self.lines.len() == before { silent + 1 } else { 0 };
                }
            }
            _ => return false,
        }
        true
    }

    /// Loses the messages that cannot pass.
    fn part(&mut self) {
        let is_apart = |node: &NodeId| self.apart.contains(node);
        self.cell.letters.retain(|letter| is_apart(&letter.from) == is_apart(&letter.to));
    }

    fn settle(&mut self) {
        loop {
            self.part();
            if let Some(letter) = self.cell.letters.first().cloned() {
                self.cell.letters.remove(0);
                // A scene that is about refusals delivers its messages itself.
                let _ = self.cell.deliver(&letter);
            } else if self.writes_at_once && !self.cell.writes.is_empty() {
                self.cell.write_records();
            } else {
                return;
            }
        }
    }

    /// Takes the messages in flight that match out of the network.
    fn lose(&mut self, filter: &[&str]) -> Vec<Letter> {
        let (mut kind, mut to, mut from) = (None, None, None);
        let mut words = filter.iter();
        while let Some(word) = words.next() {
            match *word {
                "to" => to = words.next().map(|word| node_of(word)),
                "from" => from = words.next().map(|word| node_of(word)),
                word => {
                    assert!(Message::KINDS.contains(&word), "neither a kind nor a label: {word}");
                    kind = Some(word);
                }
            }
        }
        self.cell.take(|letter| {
            kind.is_none_or(|kind| letter.kind() == kind)
                && to.is_none_or(|to| letter.to == to)
                && from.is_none_or(|from| letter.from == from)
        })
    }

    fn deliver(&mut self, letters: Vec<Letter>) {
        for letter in letters {
            if let Err(refusal) = self.cell.deliver(&letter) {
                self.outcome(&format!("{} (dropped: {refusal})", route(&letter)));
            }
            self.events();
        }
    }

    /// Delivers all messages in flight, `count` times, and shows them.
    fn hops(&mut self, count: usize) {
        for _ in 0..count {
            self.cell.pass(MS);
            self.events();
            self.part();
            for letter in self.cell.take(|_| true) {
                let outcome = self.cell.deliver(&letter);
                if self.writes_at_once {
                    self.cell.write_records();
                }
                self.message_line(&letter, outcome);
                self.events();
            }
        }
    }

    fn message_line(&mut self, letter: &Letter, outcome: Result<(), Refusal>) {
        let who = format!("{:?} -> {:?}", letter.from, letter.to);
        let dropped = outcome.err().map(|refusal| format!(" (dropped: {refusal})"));
        let what = words::message(&letter.transmit.message());
        self.line(&who, &format!("{what}{}", dropped.unwrap_or_default()));
    }

    fn events(&mut self) {
        while let Some((at, event)) = self.cell.events.get(self.told) {
            let (whom, what) = words::event(event, self.began_at);
            self.line(&format!("{at:?} => {whom}"), &what);
            self.told += 1;
        }
    }

    fn line(&mut self, who: &str, what: &str) {
        let millis = self.cell.now.since(self.began_at).as_millis();
        let _ = writeln!(self.lines, " {millis:>5} ms  {who:<11}  {what}");
    }

    pub(crate) fn outcome(&mut self, text: &str) {
        let _ = writeln!(self.lines, "    {text}");
    }
}

pub(crate) fn route(letter: &Letter) -> String {
    let Letter { from, to, transmit } = letter;
    format!("{from:?} -> {to:?}  {}", words::message(&transmit.message()))
}
