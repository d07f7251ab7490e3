//! The content of a diagram, read from a trace: lines, arrows and bars in true time, without
//! pixels.
//!
//! A scene shows one name and leaves out promises, leases and beliefs of other names.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Entry, TraceEvent, TrueTime};

/// One arrow.
pub(super) struct Arrow {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) text: String,
    pub(super) sent_at: TrueTime,
    pub(super) end: End,
    /// The same message was sent before, at the same instant.
    pub(super) duplicate: bool,
    /// How many equal arrows this one stands for.
    pub(super) copies: u32,
}

impl Arrow {
    fn says(&self, sent_at: TrueTime, from: u16, to: u16, text: &str) -> bool {
        (self.sent_at, self.from, self.to, &*self.text) == (sent_at, from, to, text)
    }
}

/// How many arrows back to look for copies of a message.
const NEAR: usize = 64;

/// How an arrow ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Delivered(TrueTime),
    Lost(TrueTime),
    OnItsWay,
}

/// A bar between two instants, on the line of a node or a client.
pub(super) struct Span<K> {
    pub(super) key: K,
    pub(super) from: TrueTime,
    pub(super) until: TrueTime,
    /// When the bar would have ended, had nothing ended or prolonged it before.
    pub(super) stated: TrueTime,
}

impl<K> Span<K> {
    const fn new(key: K, from: TrueTime, until: TrueTime) -> Self {
        Self { key, from, until, stated: until }
    }
}

/// A tenure on a line: a lease stored by an acceptor, or a client's belief.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held<L> {
    /// The id of the node, or the number of the client.
    pub(super) line: L,
    pub(super) fence: u64,
    /// A renewal: the line had the same tenure before.
    pub(super) again: bool,
}

/// Why a node does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Idle {
    Crashed,
    Stopped,
    Quarantined,
    Paused,
}

/// A text on the line of a node or a client.
pub(super) struct Mark<K> {
    pub(super) key: K,
    pub(super) at: TrueTime,
    pub(super) text: String,
}

/// Everything a diagram shows.
#[derive(Default)]
pub(super) struct Scene {
    pub(super) nodes: BTreeSet<u16>,
    pub(super) clients: BTreeSet<u32>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) promises: Vec<Mark<u16>>,
    pub(super) leases: Vec<Span<Held<u16>>>,
    pub(super) holdings: Vec<Span<Held<u32>>>,
    pub(super) idles: Vec<Span<(u16, Idle)>>,
    pub(super) asks: Vec<Mark<(u32, u16)>>,
    pub(super) notes: Vec<Mark<u16>>,
    pub(super) violations: Vec<(TrueTime, String)>,
    pub(super) from: TrueTime,
    pub(super) to: TrueTime,
}

impl Scene {
    /// Reads a trace. Without a window the scene covers the whole trace, up to the end of the last
    /// belief.
    pub(super) fn read(
        entries: &[Entry],
        name: &str,
        window: Option<(TrueTime, TrueTime)>,
    ) -> Self {
        let mut reader = Reader { name, ..Reader::default() };
        entries.iter().for_each(|entry| reader.read(entry));
        reader.merge_copies();
        let mut scene = reader.scene;
        let seen = entries.iter().map(|entry| entry.at);
        let (first, last) = (seen.clone().min(), seen.max());
        let ends = scene.holdings.iter().map(|span| span.until);
        let last = ends.chain(last).max().unwrap_or_default();
        (scene.from, scene.to) = window.unwrap_or((first.unwrap_or_default(), last));
        scene.clip();
        scene
    }

    /// The periods in which two clients hold the lease, with the two clients.
    pub(super) fn overlaps(&self) -> Vec<Span<(u32, u32)>> {
        let mut overlaps: Vec<Span<(u32, u32)>> = Vec::new();
        for (index, a) in self.holdings.iter().enumerate() {
            for b in &self.holdings[..index] {
                let (from, until) = (a.from.max(b.from), a.until.min(b.until));
                if from >= until || (a.key.line, a.key.fence) == (b.key.line, b.key.fence) {
                    continue;
                }
                let key = (a.key.line.min(b.key.line), a.key.line.max(b.key.line));
                match overlaps
                    .iter_mut()
                    .find(|o| o.key == key && o.until >= from && o.from <= until)
                {
                    Some(known) => {
                        known.from = known.from.min(from);
                        known.until = known.until.max(until);
                    }
                    None => overlaps.push(Span::new(key, from, until)),
                }
            }
        }
        overlaps
    }

    /// Every instant that needs a place on the axis.
    pub(super) fn instants(&self) -> Vec<TrueTime> {
        fn ends<K>(spans: &[Span<K>]) -> impl Iterator<Item = TrueTime> {
            spans.iter().flat_map(|span| [span.from, span.until])
        }
        let arrows = self.arrows.iter().flat_map(|arrow| match arrow.end {
            End::Delivered(at) | End::Lost(at) => [arrow.sent_at, at],
            End::OnItsWay => [arrow.sent_at, arrow.sent_at],
        });
        arrows
            .chain(ends(&self.leases))
            .chain(ends(&self.holdings))
            .chain(ends(&self.idles))
            .chain(self.asks.iter().map(|ask| ask.at))
            .chain(self.notes.iter().map(|note| note.at))
            .chain(self.violations.iter().map(|violation| violation.0))
            .chain([self.from, self.to])
            .filter(|at| (self.from..=self.to).contains(at))
            .collect()
    }

    /// The median delay of a message.
    pub(super) fn flight(&self) -> Option<u64> {
        let flights = self.arrows.iter().filter_map(|arrow| match arrow.end {
            End::Delivered(at) => Some(at.0 - arrow.sent_at.0),
            End::Lost(_) | End::OnItsWay => None,
        });
        let mut flights: Vec<u64> = flights.filter(|flight| *flight > 0).collect();
        flights.sort_unstable();
        flights.get(flights.len() / 2).copied()
    }

    fn clip(&mut self) {
        let (from, to) = (self.from, self.to);
        let inside = |at: TrueTime| (from..=to).contains(&at);
        fn cut<K>(spans: &mut Vec<Span<K>>, from: TrueTime, to: TrueTime) {
            for span in spans.iter_mut() {
                (span.from, span.until) = (span.from.max(from), span.until.min(to));
            }
            spans.retain(|span| span.from < span.until);
        }
        cut(&mut self.leases, from, to);
        cut(&mut self.holdings, from, to);
        cut(&mut self.idles, from, to);
        self.arrows.retain(|arrow| inside(arrow.sent_at));
        for arrow in &mut self.arrows {
            if let End::Delivered(at) | End::Lost(at) = arrow.end
                && at > to
            {
                arrow.end = End::OnItsWay;
            }
        }
        self.promises.retain(|mark| inside(mark.at));
        self.asks.retain(|mark| inside(mark.at));
        self.notes.retain(|mark| inside(mark.at));
        self.violations.retain(|violation| inside(violation.0));
        let asking = self.asks.iter().map(|ask| ask.key.0);
        self.clients = asking.chain(self.holdings.iter().map(|span| span.key.line)).collect();
    }
}

/// The name to show: the one last mentioned when an invariant broke, else the first mentioned.
pub(super) fn subject(entries: &[Entry]) -> String {
    let (mut first, mut latest) = (None, None);
    for entry in entries {
        match &entry.event {
            TraceEvent::Promised { name, .. }
            | TraceEvent::Stored { name, .. }
            | TraceEvent::Believes { name, .. } => {
                first = first.or(Some(name));
                latest = Some(name);
            }
            TraceEvent::Violation { .. } if latest.is_some() => {
                return latest.cloned().unwrap_or_default();
            }
            _ => {}
        }
    }
    first.cloned().unwrap_or_default()
}

/// Converts entries into spans.
#[derive(Default)]
struct Reader<'a> {
    name: &'a str,
    scene: Scene,
    /// The index of each message's arrow.
    arrows: BTreeMap<u64, usize>,
    /// The index of each line's open bar.
    leases: BTreeMap<u16, usize>,
    holdings: BTreeMap<u32, usize>,
    idles: BTreeMap<u16, usize>,
}

impl Reader<'_> {
    fn read(&mut self, Entry { at, event }: &Entry) {
        let at = *at;
        match event {
            TraceEvent::Sent { message, from, to, text } => {
                self.scene.nodes.extend([*from, *to]);
                let same = |arrow: &Arrow| arrow.says(at, *from, *to, text);
                let duplicate = self.scene.arrows.iter().rev().take(NEAR).any(same);
                self.arrows.insert(*message, self.scene.arrows.len());
                let (from, to, text, end) = (*from, *to, text.clone(), End::OnItsWay);
                let (sent_at, copies) = (at, 1);
                self.scene.arrows.push(Arrow { from, to, text, sent_at, end, duplicate, copies });
            }
            TraceEvent::Delivered(message) => self.end_arrow(*message, End::Delivered(at)),
            TraceEvent::Lost(message) => self.end_arrow(*message, End::Lost(at)),
            TraceEvent::Asked { client, node, text } => {
                self.scene.clients.insert(*client);
                let key = (*client, *node);
                self.scene.asks.push(Mark { key, at, text: text.clone() });
            }
            TraceEvent::Promised { node, name, ballot } if name == self.name => {
                self.scene.promises.push(Mark { key: *node, at, text: ballot.clone() });
            }
            TraceEvent::Stored { node, name, fence, until } if name == self.name => {
                self.scene.nodes.insert(*node);
                let open = &mut self.leases;
                hold(&mut self.scene.leases, open, *node, *fence, at, *until);
            }
            TraceEvent::Cleared { node, name } if name == self.name => self.clear(at, *node),
            TraceEvent::Believes { client, name, fence, until, .. } if name == self.name => {
                self.scene.clients.insert(*client);
                let open = &mut self.holdings;
                hold(&mut self.scene.holdings, open, *client, *fence, at, *until);
            }
            TraceEvent::Yielded { client, name } if name == self.name => {
                end_open(&mut self.scene.holdings, &mut self.holdings, *client, at);
            }
            TraceEvent::Promised { .. }
            | TraceEvent::Stored { .. }
            | TraceEvent::Cleared { .. }
            | TraceEvent::Believes { .. }
            | TraceEvent::Yielded { .. } => {}
            TraceEvent::Crashed(node) => {
                self.clear(at, *node);
                self.idle(at, *node, Idle::Crashed, TrueTime(u64::MAX));
            }
            TraceEvent::Stopped(node) => {
                self.clear(at, *node);
                self.idle(at, *node, Idle::Stopped, TrueTime(u64::MAX));
            }
            TraceEvent::Started { node, quarantine_until } => {
                self.scene.nodes.insert(*node);
                end_open(&mut self.scene.idles, &mut self.idles, *node, at);
                if let Some(until) = quarantine_until {
                    self.idle(at, *node, Idle::Quarantined, *until);
                }
            }
            TraceEvent::Paused { node, until } => {
                let key = (*node, Idle::Paused);
                self.scene.idles.push(Span::new(key, at, *until));
            }
            TraceEvent::Violation(text) => self.scene.violations.push((at, text.clone())),
            TraceEvent::Note { node, text } => {
                self.scene.notes.push(Mark { key: *node, at, text: text.clone() });
            }
        }
    }

    fn end_arrow(&mut self, message: u64, end: End) {
        if let Some(arrow) = self.arrows.get(&message) {
            self.scene.arrows[*arrow].end = end;
        }
    }

    fn clear(&mut self, at: TrueTime, node: u16) {
        end_open(&mut self.scene.leases, &mut self.leases, node, at);
    }

    fn idle(&mut self, at: TrueTime, node: u16, idle: Idle, until: TrueTime) {
        self.scene.nodes.insert(node);
        end_open(&mut self.scene.idles, &mut self.idles, node, at);
        self.idles.insert(node, self.scene.idles.len());
        self.scene.idles.push(Span::new((node, idle), at, until));
    }

    /// Where the network duplicated a message, only the copies arrive: the first copy stands for
    /// the message that was sent. Copies that arrive together become one arrow.
    fn merge_copies(&mut self) {
        let mut kept: Vec<Arrow> = Vec::new();
        for mut arrow in std::mem::take(&mut self.scene.arrows) {
            let same = |other: &&mut Arrow| {
                other.says(arrow.sent_at, arrow.from, arrow.to, &arrow.text)
                    && (other.end == End::OnItsWay || other.end == arrow.end)
            };
            match kept.iter_mut().rev().take(NEAR).find(same) {
                Some(sent) if sent.end == arrow.end => sent.copies += 1,
                Some(sent) => {
                    arrow.duplicate = sent.duplicate;
                    *sent = arrow;
                }
                None => kept.push(arrow),
            }
        }
        self.scene.arrows = kept;
    }
}

/// Ends the open bar of a line at this time, unless it ends before. Returns its index.
fn end_open<K, L: Ord>(
    spans: &mut [Span<K>],
    open: &mut BTreeMap<L, usize>,
    line: L,
    at: TrueTime,
) -> Option<usize> {
    let index = open.remove(&line)?;
    spans[index].until = spans[index].until.min(at);
    Some(index)
}

/// Begins a bar for a tenure, in place of the open bar of the line.
fn hold<L: Ord + Copy>(
    spans: &mut Vec<Span<Held<L>>>,
    open: &mut BTreeMap<L, usize>,
    line: L,
    fence: u64,
    at: TrueTime,
    until: TrueTime,
) {
    let is_live = open.get(&line).is_some_and(|index| spans[*index].until > at);
    let last = end_open(spans, open, line, at);
    let again = is_live && last.is_some_and(|index| spans[index].key.fence == fence);
    open.insert(line, spans.len());
    spans.push(Span::new(Held { line, fence, again }, at, until));
}
