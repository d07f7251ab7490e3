//! Replays one trace in a fresh core, and checks every step against the rules that concern one
//! node.

mod acceptor;
mod epochs;
mod proposer;
mod registers;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use paxoslease_core::{Ballot, Instant, Message, Record, Reply, Request, Shard, Ttl};
use paxoslease_wire::FrameReader;

use crate::input::{Input, Outputs, Returned};
use crate::line::{Epoch, Header, Line, StartState, Step};
use crate::model::{Ask, ClockModel, Entry, nanos};
use crate::report::Report;

pub(crate) use registers::Registers;

/// The most rounds that may be under way; older ones are over.
const RECENT_MAX: usize = 64;

/// How a trace ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The process was killed, or still runs.
    Killed,
    /// The node stopped cleanly at this instant, with a snapshot or without.
    Stopped { now: u64, snapshot: bool },
    /// The node continued after the end of its trace.
    Unknown,
}

/// A tenure was granted or renewed.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    pub(crate) name: String,
    pub(crate) tenure: u64,
    pub(crate) is_fresh: bool,
    /// On the shared clock: when the round completed, and when the belief ends.
    pub(crate) at: u64,
    pub(crate) ends_at: u64,
}

/// A round of this node's proposer.
#[derive(Clone, Debug)]
struct Round {
    name: String,
    /// The tenure that the round renews; `None` for a fresh round.
    renews: Option<u64>,
    ttl: Option<u64>,
    began_at: u64,
    /// The epoch in which it began, and ends (J3).
    epoch: u32,
    accepts: BTreeSet<u16>,
    /// J1: the nodes that store it, in a joint epoch.
    healed: BTreeSet<u16>,
}

/// The state of one replayed trace, and what the judge of the cell needs from it.
pub(crate) struct Run {
    pub(crate) label: String,
    pub(crate) header: Header,
    pub(crate) end: End,
    pub(crate) time: ClockModel,
    pub(crate) now: u64,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) durable: Option<Record>,
    pub(crate) quarantine_until: u64,
    /// The highest ballot counter issued, and the highest promised.
    pub(crate) issued_max: u64,
    pub(crate) promised_max: u64,
    pub(crate) sent: BTreeSet<u64>,
    pub(crate) received: Vec<(u16, u64, u64)>,
    pub(crate) completions: Vec<Completion>,
    /// Tenures, and when on the shared clock a client asked this node to release them.
    pub(crate) releases: Vec<(u64, u64)>,
    /// The epochs of this run, with the floors of those that it adopted.
    pub(crate) epochs: Vec<(Epoch, Option<u64>)>,
    core: Shard,
    epoch: Epoch,
    /// Names whose records are dated (E1).
    pub(crate) dated: BTreeSet<String>,
    /// The names that clients asked for, by token.
    asked: BTreeMap<u64, String>,
    /// The names in requests of other nodes while the acceptor was not judged.
    unjudged: BTreeSet<String>,
    /// The highest counter of a round that began while rounds were not seen.
    unseen_max: u64,
    /// W2: the ballot ceiling on disk is at least this.
    ceiling_min: u64,
    max_lease: u64,
    floor: u64,
    /// R5: the node started without a record, and has not learnt its floor yet.
    has_forgotten: bool,
    writing: Option<Record>,
    /// Requests that may wait until the current record is durable.
    waiting: Vec<(String, Ask)>,
    rounds: BTreeMap<u64, Round>,
    /// The registers of durable names, and the ballots of their changes.
    pub(crate) registers: Registers,
    prepared: BTreeMap<u64, String>,
    granted: BTreeSet<u64>,
    /// Tenures that a client asked this node to release, and those of void rounds.
    released: BTreeMap<u64, u64>,
    /// Tenures whose Release came from another node.
    released_elsewhere: BTreeSet<u64>,
    undone: BTreeSet<u64>,
    steps: u64,
}

impl Run {
    /// `None` when the trace cannot be replayed.
    pub(crate) fn new(label: String, header: Header, report: &mut Report) -> Option<Self> {
        let mut core = header.start()?;
        let cell = core.config().cell;
        let time = ClockModel {
            drift_ppm: cell.drift().ppm().into(),
            granularity: cell.drift().granularity().as_nanos() as u64,
            clock_ppm: header.clock_ppm,
        };
        let now = header.now;
        let longest = header.start_state.longest_lost().as_nanos() as u64;
        let quarantine_until = now + time.quarantine(longest);
        let remaining = core.quarantine_as_member(Instant::from_nanos(now)).as_nanos() as u64;
        // C8: a node that becomes a member later keeps the quarantine of its start.
        report.check(
            "T3 the quarantine covers the longest ttl",
            now + remaining >= quarantine_until,
            || format!("{label}: {remaining} ns for leases of up to {longest} ns"),
        );
        let start_outputs = Outputs::drain(&mut core, Returned::Nothing);
        let mut run = Self {
            epochs: vec![(header.epoch().clone(), None)],
            epoch: header.epoch().clone(),
            dated: BTreeSet::new(),
            asked: BTreeMap::new(),
            unjudged: BTreeSet::new(),
            unseen_max: 0,
            ceiling_min: 0,
            max_lease: nanos(cell.max_lease()),
            durable: header.start_state.record(),
            floor: core.floor().map_or(0, Ballot::as_u64),
            has_forgotten: matches!(header.start_state, StartState::NoRecord { .. }),
            issued_max: header.start_state.counter(),
            label,
            header,
            end: End::Killed,
            time,
            now,
            entries: BTreeMap::new(),
            quarantine_until,
            promised_max: 0,
            sent: BTreeSet::new(),
            received: Vec::new(),
            completions: Vec::new(),
            releases: Vec::new(),
            core,
            writing: None,
            waiting: Vec::new(),
            rounds: BTreeMap::new(),
            registers: Registers::default(),
            prepared: BTreeMap::new(),
            granted: BTreeSet::new(),
            released: BTreeMap::new(),
            released_elsewhere: BTreeSet::new(),
            undone: BTreeSet::new(),
            steps: 0,
        };
        let counter = run.header.start_state.counter();
        report.check(
            "R1 the floor starts at the ceiling",
            run.core.floor().is_none() || run.floor > (counter << 10 | 0x3ff),
            || format!("{}: floor {} with a ceiling of {counter}", run.label, run.floor),
        );
        if let StartState::Snapshot { leases, .. } = run.header.start_state.clone() {
            for lease in leases {
                let expires_at = now + u64::from(lease.remaining) * 1_000_000;
                let entry = Entry { promised: 0, accepted: Some((lease.tenure, expires_at)) };
                let found = run.observed(&lease.name);
                report.check(
                    "R4 leases are restored with their full time",
                    found == Some(entry),
                    || format!("{}: {lease:?} became {found:?}", run.label),
                );
                run.dated.extend(lease.is_dated.then(|| lease.name.clone()));
                if !run.confirms_alone() {
                    run.entries.insert(lease.name, entry);
                }
            }
        }
        run.events(&start_outputs, report);
        Some(run)
    }

    /// Takes the next line. `false` when the rest of the trace cannot be judged.
    pub(crate) fn line(&mut self, line: Line, report: &mut Report) -> bool {
        match line {
            Line::Step(step) => return self.step(&step, report),
            Line::Stop { now, leases } => {
                let quarantined = now < self.quarantine_until;
                report.check(
                    "R4 no snapshot from quarantine",
                    leases.is_none() || !quarantined,
                    || {
                        format!(
                            "{}: stopped at {now}, quarantined until {}",
                            self.label, self.quarantine_until
                        )
                    },
                );
                let live = self.entries.values().filter(|entry| entry.live(now).is_some()).count();
                report.check(
                    "R4 a snapshot has every live lease",
                    leases.is_none_or(|count| count == live || self.confirms_alone()),
                    || format!("{}: {leases:?} leases in the snapshot, {live} live", self.label),
                );
                self.end = End::Stopped { now, snapshot: leases.is_some() };
            }
            Line::Full => self.end = End::Unknown,
            Line::Begin(_) => self.diverged(report, "the trace has two headers"),
        }
        false
    }

    fn diverged(&mut self, report: &mut Report, why: &str) {
        self.end = End::Unknown;
        report.check("the core does the same again", false, || self.at(why));
    }

    fn at(&self, what: impl std::fmt::Display) -> String {
        format!("{}, step {} at {}: {what}", self.label, self.steps, self.now)
    }

    fn step(&mut self, step: &Step, report: &mut Report) -> bool {
        self.steps += 1;
        report.steps += 1;
        report.check("T4 a clock never goes back", step.now >= self.now, || self.at(step.now));
        self.now = step.now;
        if matches!(step.input, Input::Adopt { .. }) {
            self.before_adoption();
        }
        let Some(outputs) = step.input.apply(&mut self.core, Instant::from_nanos(step.now)) else {
            self.diverged(report, "the input is invalid");
            return false;
        };
        let texts = outputs.texts();
        report.check("the core does the same again", texts == step.out, || {
            self.at(format!("{:?} caused {:?}, and {texts:?} in the replay", step.input, step.out))
        });
        if texts != step.out {
            self.end = End::Unknown;
            return false;
        }
        if let Input::Adopt { epoch, floor } = &step.input {
            self.adopted(epoch, *floor, report);
        }
        self.note_input(&step.input, &outputs);
        self.note_durable(&step.input, &outputs);
        let issued_before = self.issued_max;
        let issued = self.rounds_begun(&outputs, report);
        self.durable_messages(&step.input, &outputs, issued_before, report);
        self.durable_writes(&outputs, report);
        self.acceptor(&step.input, &outputs, &issued, report);
        self.own_accepts();
        self.transmits(&outputs, report);
        self.events(&outputs, report);
        if self.writing.is_none() && self.registers.writing.is_empty() {
            self.waiting.clear();
            self.registers.stop_waiting();
        }
        true
    }

    fn note_input(&mut self, input: &Input, outputs: &Outputs) {
        let shared = self.time.shared(self.now);
        match input {
            Input::Acquire { token, name, .. } | Input::Renew { token, name, .. } => {
                self.asked.insert(*token, name.clone());
            }
            Input::Release { tenure, .. } | Input::ReleaseDurable { tenure, .. }
                if outputs.returned == Returned::Asked(Ok(())) =>
            {
                self.released.entry(*tenure).or_insert(self.now);
                self.releases.push((*tenure, shared));
            }
            Input::Written { ballot_ceiling, lease_ceiling } => {
                let lease_ceiling = lease_ceiling.and_then(Ttl::from_millis);
                let record = Record { ballot_ceiling: *ballot_ceiling, lease_ceiling };
                if self.writing == Some(record) {
                    let ballot_ceiling = record.ballot_ceiling.max(self.ceiling_min);
                    (self.durable, self.writing) =
                        (Some(Record { ballot_ceiling, ..record }), None);
                }
            }
            Input::Message { from, .. } => {
                let Some((_, frame)) = input.frame() else { return };
                let Some(message) = message_in(&frame) else { return };
                // C1: the node handles messages of its own epoch only.
                let digest = digest(self.epoch.number, *from, self.header.node, &message);
                self.received.push((*from, self.steps, digest));
                if let Message::Request(request) = &message
                    && self.confirms_alone()
                {
                    self.unjudged.insert(request.name().to_string());
                }
                match message {
                    Message::Reply(Reply::Accept { ballot }) => {
                        if let Some(round) = self.open_round(ballot.as_u64()) {
                            round.accepts.insert(*from);
                        }
                    }
                    Message::Reply(Reply::Healed { ballot }) => {
                        if let Some(round) = self.open_round(ballot.as_u64()) {
                            round.healed.insert(*from);
                        }
                    }
                    Message::Request(Request::Release { tenure, .. }) => {
                        self.released_elsewhere.insert(tenure.fence());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

fn message_in(frame: &[u8]) -> Option<Message<'_>> {
    FrameReader::new(frame).ok()?.next()?.ok()
}

/// The requests that this node sent, to other nodes or to itself.
fn requests(outputs: &Outputs) -> impl Iterator<Item = Request<'_>> {
    outputs.transmits.iter().filter_map(|transmit| match transmit.message() {
        Message::Request(request) => Some(request),
        Message::Reply(_) | Message::Hint(_) | Message::Durable(_) => None,
    })
}

fn replies(outputs: &Outputs) -> impl Iterator<Item = Reply<'_>> {
    outputs.transmits.iter().filter_map(|transmit| match transmit.message() {
        Message::Reply(reply) => Some(reply),
        Message::Request(_) | Message::Hint(_) | Message::Durable(_) => None,
    })
}

/// A hash of a message in flight in one epoch.
fn digest(epoch: u32, from: u16, to: u16, message: &Message<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (epoch, from, to, message).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
impl Run {
    /// Makes the judge assume that a client asked for the release of every tenure begun here.
    pub(crate) fn release_everything(&mut self) {
        self.released.extend(self.rounds.keys().map(|tenure| (*tenure, u64::MAX)));
    }

    /// Makes the judge assume that the node is not a member.
    pub(crate) fn expel(&mut self) {
        self.epoch.old = vec![9];
        self.epoch.new.clear();
    }

    /// Makes the judge assume that no record is dated.
    pub(crate) fn forget_dates(&mut self) {
        self.dated.clear();
    }

    /// Makes the judge assume higher promises than were given.
    pub(crate) fn raise_everything(&mut self) {
        self.floor = u64::MAX;
        self.now = u64::MAX;
        self.entries.values_mut().for_each(|entry| entry.promised = u64::MAX);
    }
}
