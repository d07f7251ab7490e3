//! Judges all traces of a cell: the rules that concern several starts of a node, or several nodes.
//!
//! Shards with different indices are independent. The nodes of one test read the same clock, at
//! rates that their traces record, so their instants can be compared (section 5).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

use crate::line::{Epoch, Lease, Line, StartState};
use crate::report::{Clocks, Report};
use crate::run::{Completion, End, Registers, Run};

/// The rounding error between two readings of scaled clocks, in nanoseconds.
const ROUNDING: u64 = 10;

/// Collects traces, then judges them together.
pub struct Judge {
    clocks: Clocks,
    report: Report,
    runs: Vec<Run>,
}

impl Judge {
    /// A judge without traces.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self { clocks, report: Report::default(), runs: Vec::new() }
    }

    /// Replays a trace. Violations mention it as `label`. A killed process leaves a torn last line;
    /// it had sent nothing of that step.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn add(&mut self, label: &str, mut trace: impl BufRead) -> io::Result<()> {
        let report = &mut self.report;
        report.traces += 1;
        let mut run: Option<Run> = None;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if trace.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if bytes.last() != Some(&b'\n') {
                report.cut_short += 1;
                break;
            }
            let line = serde_json::from_slice::<Line>(&bytes).ok();
            report.cut_short += usize::from(line == Some(Line::Full));
            let goes_on = match (&mut run, line) {
                (Some(run), Some(line)) => run.line(line, report),
                (None, Some(Line::Begin(header))) => {
                    run = Run::new(label.to_owned(), *header, report);
                    run.is_some()
                }
                (_, None | Some(_)) => false,
            };
            if !goes_on {
                break;
            }
            report.check("every line is whole", true, String::new);
        }
        let rest = trace.fill_buf()?.len();
        match run {
            Some(run) => {
                let is_whole = rest == 0 || run.end != End::Killed;
                report.check("every line is whole", is_whole, || format!("{label}: damaged"));
                self.runs.push(run);
            }
            None => report.check(
                "every line is whole",
                bytes.is_empty() || bytes.last() != Some(&b'\n'),
                || format!("{label}: this build cannot replay its first line"),
            ),
        }
        Ok(())
    }

    /// Judges the collected traces together.
    #[must_use]
    pub fn verdict(mut self) -> Report {
        let shards: BTreeSet<u16> = self.runs.iter().map(|run| run.header.shard).collect();
        for shard in shards {
            let mut runs: Vec<&Run> =
                self.runs.iter().filter(|run| run.header.shard == shard).collect();
            runs.sort_by_key(|run| run.time.shared(run.header.now));
            self.report.messages(&runs);
            self.report.configurations(&runs);
            let nodes: BTreeSet<u16> = runs.iter().map(|run| run.header.node).collect();
            for node in nodes {
                let own: Vec<&Run> =
                    runs.iter().copied().filter(|run| run.header.node == node).collect();
                for at in 1..own.len() {
                    self.report.restart(&own[..at], own[at], self.clocks);
                }
            }
            if self.clocks == Clocks::WithinDrift {
                self.report.holders(&runs);
            }
        }
        self.report
    }
}

impl Report {
    /// Every received message was sent by the node that it came from.
    fn messages(&mut self, runs: &[&Run]) {
        let sent: BTreeSet<u64> = runs.iter().flat_map(|run| &run.sent).copied().collect();
        let unknown = |node: u16| {
            let mut of_node = runs.iter().filter(|run| run.header.node == node).peekable();
            of_node.peek().is_none() || of_node.any(|run| run.end == End::Unknown)
        };
        let unknown: BTreeSet<u16> = (1..=1023).filter(|node| unknown(*node)).collect();
        for run in runs {
            for (from, step, digest) in &run.received {
                if !unknown.contains(from) {
                    self.check("what is received was sent", sent.contains(digest), || {
                        format!("{}, step {step}: node {from} never sent it", run.label)
                    });
                }
            }
        }
    }

    /// C3: one configuration for each epoch, on all nodes. In epoch 0 it is the list of each node.
    fn configurations(&mut self, runs: &[&Run]) {
        let mut known: BTreeMap<u32, (&Epoch, Option<u64>)> = BTreeMap::new();
        let all = runs.iter().flat_map(|run| run.epochs.iter().map(move |epoch| (run, epoch)));
        for (run, (epoch, floor)) in all.filter(|(_, (epoch, _))| epoch.number > 0) {
            let (first, first_floor) = known.entry(epoch.number).or_insert((epoch, *floor));
            let same_floor = first_floor.is_none() || floor.is_none() || *first_floor == *floor;
            *first_floor = first_floor.or(*floor);
            self.check("C3 one configuration per epoch", *first == epoch && same_floor, || {
                format!("{}: {epoch:?} with a floor of {floor:?}, {first:?} elsewhere", run.label)
            });
        }
    }

    /// Section 6: the starts of a node so far, and its next start.
    fn restart(&mut self, before: &[&Run], run: &Run, clocks: Clocks) {
        let label = &run.label;
        let last = before[before.len() - 1];
        let counter = run.header.start_state.counter();
        let issued = before.iter().map(|run| run.issued_max).max().unwrap_or(0);
        self.check("R1 no ballot is issued twice", counter >= issued, || {
            format!("{label}: counts from {counter}, {issued} was issued before")
        });
        let is_kept = |run: &Run| {
            matches!(run.header.start_state, StartState::Crash { .. } | StartState::Snapshot { .. })
        };
        if is_kept(run) {
            let promised = before.iter().map(|run| run.promised_max).max().unwrap_or(0);
            self.check("R1 no promise is lowered", counter >= promised, || {
                format!("{label}: counts from {counter}, {promised} was promised before")
            });
            let durable = before.iter().filter_map(|run| Some(run.durable?.ballot_ceiling)).max();
            self.check("R1 the record outlives the process", Some(counter) >= durable, || {
                format!("{label}: read a ceiling of {counter}, {durable:?} was durable")
            });
            let epoch = run.header.epoch().number;
            let highest = before.iter().flat_map(|run| &run.epochs).map(|(epoch, _)| epoch.number);
            let highest = highest.max().unwrap_or(0);
            self.check("C2 an epoch never falls", epoch >= highest, || {
                format!("{label}: starts in epoch {epoch}, it was in {highest}")
            });
        }
        if before.iter().any(|run| run.end == End::Unknown) {
            return;
        }
        if is_kept(run) {
            self.registers(&before[before.len() - 1].registers, run);
        }
        let restored = match (&run.header.start_state, last.end) {
            (StartState::Snapshot { .. }, End::Stopped { snapshot: true, .. })
                if !run.header.epoch().has_member(run.header.node) =>
            {
                // A node that is no member restores nothing: if it is added, its records end (E2).
                true
            }
            (StartState::Snapshot { leases, .. }, End::Stopped { now, snapshot: true }) => {
                let last_epoch = last.epochs.last().map(|(epoch, _)| epoch.number);
                let same = last_epoch == Some(run.header.epoch().number);
                self.check("E4 a snapshot is of the epoch of the record", same, || {
                    format!("{label}: {:?} after {last_epoch:?}", run.header.epoch())
                });
                for (name, entry) in &last.entries {
                    let Some(tenure) = entry.live(now) else { continue };
                    let left = entry.accepted.map_or(0, |(_, expires_at)| expires_at - now);
                    let whole = leases.iter().any(|lease| {
                        let remaining = u64::from(lease.remaining) * 1_000_000;
                        (lease.name.as_str(), lease.tenure) == (name, tenure) && remaining >= left
                    });
                    self.check("R4 a snapshot loses no lease", whole, || {
                        format!("{label}: {name} of {tenure} had {left} ns left")
                    });
                    let was_dated = last.dated.contains(name);
                    let same = |lease: &Lease| lease.name != *name || lease.is_dated == was_dated;
                    if run.header.epoch().number > 0 {
                        let same = leases.iter().all(same);
                        self.check("E4 a snapshot says which records are dated", same, || {
                            format!("{label}: {name} of {tenure} was dated: {was_dated}")
                        });
                    }
                }
                true
            }
            (StartState::Snapshot { .. }, end) => {
                self.check("R4 a snapshot is of the stop just before", false, || {
                    format!("{label}: the run before it ended with {end:?}")
                });
                true
            }
            _ => false,
        };
        if restored {
            *self.checks.entry("R4 a snapshot is of the stop just before").or_default() += 1;
        } else if clocks == Clocks::WithinDrift {
            let votes_at = run.time.shared(run.quarantine_until) + ROUNDING;
            for (earlier, (name, entry)) in
                before.iter().flat_map(|run| run.entries.iter().map(move |entry| (run, entry)))
            {
                let Some((tenure, expires_at)) = entry.accepted else { continue };
                let over = earlier.time.shared(expires_at) <= votes_at;
                self.check("R3 the quarantine outlasts what was lost", over, || {
                    format!("{label}: votes before {name} of {tenure} has expired")
                });
            }
        }
    }

    /// K12: the disk brings every register back, or what was written after it.
    fn registers(&mut self, before: &Registers, run: &Run) {
        let Run { label, registers, .. } = run;
        if !registers.is_restored {
            return;
        }
        for (name, ballot) in &before.on_disk {
            let found = registers.restored.get(name);
            let is_later = before.writing.values().any(|write| write.is_of(name));
            self.check(
                "K12 the disk brings registers back",
                found == Some(ballot) || is_later && found.is_none_or(|found| found > ballot),
                || format!("{label}: {name} of {ballot} came back as {found:?}"),
            );
        }
    }

    /// Invariants 1 and 3: one holder at a time, and fences grow.
    fn holders(&mut self, runs: &[&Run]) {
        // After the end of its trace, a node may have released something.
        let unknown = runs.iter().filter(|run| run.end == End::Unknown);
        let known_until = unknown.map(|run| run.time.shared(run.now)).min().unwrap_or(u64::MAX);
        let mut released: BTreeMap<u64, u64> = BTreeMap::new();
        for (tenure, at) in runs.iter().flat_map(|run| &run.releases) {
            let first = released.entry(*tenure).or_insert(*at);
            *first = (*first).min(*at);
        }
        let mut names: BTreeMap<&str, Vec<&Completion>> = BTreeMap::new();
        let completions = runs.iter().flat_map(|run| &run.completions);
        for completion in completions.filter(|completion| completion.at <= known_until) {
            names.entry(&completion.name).or_default().push(completion);
        }
        for (name, mut completions) in names {
            completions.sort_by_key(|completion| completion.at);
            let (mut highest, mut held_until) = (0, 0);
            for completion in completions {
                let Completion { tenure, is_fresh, at, ends_at, .. } = *completion;
                let over_at = released.get(&tenure).copied().unwrap_or(u64::MAX);
                if over_at <= at {
                    // P6: the answer arrives after the release, so the client ignores it.
                    continue;
                }
                let grows = if is_fresh { tenure > highest } else { tenure >= highest };
                self.check("invariant 3: fences grow", grows, || {
                    format!("{name}: tenure {tenure} completes at {at}, after {highest}")
                });
                let alone = tenure <= highest || held_until <= at + ROUNDING;
                self.check("invariant 1: one holder at a time", alone, || {
                    format!("{name}: {tenure} is held from {at}, {highest} until {held_until}")
                });
                held_until = match tenure == highest {
                    true => held_until.max(ends_at.min(over_at)),
                    false => ends_at.min(over_at),
                };
                highest = highest.max(tenure);
            }
        }
    }
}
