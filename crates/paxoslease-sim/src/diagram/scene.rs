//! What a diagram shows, read from a trace: lines, arrows and bars in true time, no pixels yet.
//!
//! One resource at a time: promises, leases and beliefs of other names are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Entry, TrueTime, What};

/// One arrow.
pub(super) struct Arrow {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) text: String,
    pub(super) sent_at: TrueTime,
    pub(super) end: End,
    /// The same was sent before, at the same instant.
    pub(super) duplicate: bool,
    /// How many such arrows lie on top of each other.
    pub(super) copies: u32,
}

impl Arrow {
    fn says(&self, sent_at: TrueTime, from: u16, to: u16, text: &str) -> bool {
        (self.sent_at, self.from, self.to, &*self.text) == (sent_at, from, to, text)
    }
}

/// How many arrows back copies of a message are looked for.
const NEAR: usize = 64;

/// How an arrow ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Delivered(TrueTime),
    Lost(TrueTime),
    OnItsWay,
}

/// A bar from one instant to another, on the line of a node or of a client.
pub(super) struct Span<K> {
    pub(super) key: K,
    pub(super) from: TrueTime,
    pub(super) until: TrueTime,
    /// When it was to end, had nothing ended or prolonged it before.
    pub(super) stated: TrueTime,
}

impl<K> Span<K> {
    const fn new(key: K, from: TrueTime, until: TrueTime) -> Self {
        Self { key, from, until, stated: until }
    }
}

/// A lease in an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) node: u16,
    pub(super) fence: u64,
    /// The same tenure was there before: a renewal.
    pub(super) again: bool,
}

/// What a client believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holding {
    pub(super) client: u32,
    pub(super) fence: u64,
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

/// A text at a node's or client's line.
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
    pub(super) leases: Vec<Span<Lease>>,
    pub(super) holdings: Vec<Span<Holding>>,
    pub(super) idles: Vec<Span<(u16, Idle)>>,
    pub(super) asks: Vec<Mark<(u32, u16)>>,
    pub(super) notes: Vec<Mark<u16>>,
    pub(super) violations: Vec<(TrueTime, String)>,
    pub(super) from: TrueTime,
    pub(super) to: TrueTime,
}

impl Scene {
    /// Reads a trace. Without a window it is shown whole, to the end of the last belief.
    pub(super) fn read(
        entries: &[Entry],
        name: &str,
        window: Option<(TrueTime, TrueTime)>,
    ) -> Self {
        let mut reader = Reader::new(name);
        for entry in entries {
            reader.read(entry);
        }
        let mut scene = reader.finish();
        let seen = entries.iter().map(|entry| entry.at);
        let (first, last) = (seen.clone().min(), seen.max());
        let ends = scene.holdings.iter().map(|span| span.until);
        let last = ends.chain(last).max().unwrap_or_default();
        (scene.from, scene.to) = window.unwrap_or((first.unwrap_or_default(), last));
        scene.clip();
        scene
    }

    /// Stretches in which two clients believe they hold the lease, with the two of them.
    pub(super) fn overlaps(&self) -> Vec<Span<(u32, u32)>> {
        let mut overlaps: Vec<Span<(u32, u32)>> = Vec::new();
        for (index, a) in self.holdings.iter().enumerate() {
            for b in &self.holdings[..index] {
                let (from, until) = (a.from.max(b.from), a.until.min(b.until));
                if from >= until || (a.key.client, a.key.fence) == (b.key.client, b.key.fence) {
                    continue;
                }
                let key = (a.key.client.min(b.key.client), a.key.client.max(b.key.client));
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

    /// Every instant that deserves its place on the axis.
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

    /// The median flight of a message.
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
        self.clients = asking.chain(self.holdings.iter().map(|span| span.key.client)).collect();
    }
}

/// The name a trace is mostly about: the one that was last touched when an invariant broke, else
/// the first mentioned.
pub(super) fn subject(entries: &[Entry]) -> String {
    let (mut first, mut latest) = (None, None);
    for entry in entries {
        match &entry.what {
            What::Promised { name, .. }
            | What::Stored { name, .. }
            | What::Believes { name, .. } => {
                first = first.or(Some(name));
                latest = Some(name);
            }
            What::Violation { .. } if latest.is_some() => {
                return latest.cloned().unwrap_or_default();
            }
            _ => {}
        }
    }
    first.cloned().unwrap_or_default()
}

/// Turns entries into spans.
struct Reader<'a> {
    name: &'a str,
    scene: Scene,
    /// Where each message is among the arrows.
    arrows: BTreeMap<u64, usize>,
    /// The open bar of each line, as an index.
    leases: BTreeMap<u16, usize>,
    holdings: BTreeMap<u32, usize>,
    idles: BTreeMap<u16, usize>,
}

impl<'a> Reader<'a> {
    fn new(name: &'a str) -> Self {
        Self {
            name,
            scene: Scene::default(),
            arrows: BTreeMap::new(),
            leases: BTreeMap::new(),
            holdings: BTreeMap::new(),
            idles: BTreeMap::new(),
        }
    }

    fn read(&mut self, Entry { at, what }: &Entry) {
        let at = *at;
        match what {
            What::Sent { message, from, to, text } => {
                self.scene.nodes.extend([*from, *to]);
                let same = |arrow: &Arrow| arrow.says(at, *from, *to, text);
                let duplicate = self.scene.arrows.iter().rev().take(NEAR).any(same);
                self.arrows.insert(*message, self.scene.arrows.len());
                let (from, to, text, end) = (*from, *to, text.clone(), End::OnItsWay);
                let (sent_at, copies) = (at, 1);
                self.scene.arrows.push(Arrow { from, to, text, sent_at, end, duplicate, copies });
            }
            What::Delivered { message } => self.end_arrow(*message, End::Delivered(at)),
            What::Lost { message } => self.end_arrow(*message, End::Lost(at)),
            What::Asked { client, node, text } => {
                self.scene.clients.insert(*client);
                let key = (*client, *node);
                self.scene.asks.push(Mark { key, at, text: text.clone() });
            }
            What::Promised { node, name, ballot } if name == self.name => {
                self.scene.promises.push(Mark { key: *node, at, text: ballot.clone() });
            }
            What::Stored { node, name, fence, until } if name == self.name => {
                self.store(at, *node, *fence, *until);
            }
            What::Cleared { node, name } if name == self.name => self.clear(at, *node),
            What::Believes { client, name, fence, until, .. } if name == self.name => {
                self.believe(at, *client, *fence, *until);
            }
            What::Yielded { client, name } if name == self.name => {
                self.close_holding(at, *client);
            }
            What::Promised { .. }
            | What::Stored { .. }
            | What::Cleared { .. }
            | What::Believes { .. }
            | What::Yielded { .. } => {}
            What::Crashed { node } => {
                self.clear(at, *node);
                self.idle(at, *node, Idle::Crashed, TrueTime(u64::MAX));
            }
            What::Stopped { node } => {
                self.clear(at, *node);
                self.idle(at, *node, Idle::Stopped, TrueTime(u64::MAX));
            }
            What::Started { node, quarantine_until } => {
                self.scene.nodes.insert(*node);
                self.end_idle(at, *node);
                if let Some(until) = quarantine_until {
                    self.idle(at, *node, Idle::Quarantined, *until);
                }
            }
            What::Paused { node, until } => {
                let key = (*node, Idle::Paused);
                self.scene.idles.push(Span::new(key, at, *until));
            }
            What::Violation { text } => self.scene.violations.push((at, text.clone())),
            What::Note { node, text } => {
                self.scene.notes.push(Mark { key: *node, at, text: text.clone() });
            }
        }
    }

    fn end_arrow(&mut self, message: u64, end: End) {
        if let Some(arrow) = self.arrows.get(&message) {
            self.scene.arrows[*arrow].end = end;
        }
    }

    fn store(&mut self, at: TrueTime, node: u16, fence: u64, until: TrueTime) {
        self.scene.nodes.insert(node);
        let previous = self.leases.insert(node, self.scene.leases.len());
        let previous = previous.map(|index| &mut self.scene.leases[index]);
        let again = previous.is_some_and(|previous| {
            let live = previous.until > at;
            previous.until = previous.until.min(at);
            live && previous.key.fence == fence
        });
        let key = Lease { node, fence, again };
        self.scene.leases.push(Span::new(key, at, until));
    }

    fn clear(&mut self, at: TrueTime, node: u16) {
        if let Some(index) = self.leases.remove(&node) {
            let lease = &mut self.scene.leases[index];
            lease.until = lease.until.min(at);
        }
    }

    fn believe(&mut self, at: TrueTime, client: u32, fence: u64, until: TrueTime) {
        self.scene.clients.insert(client);
        let previous = self.holdings.get(&client).map(|index| &self.scene.holdings[*index]);
        let again =
            previous.is_some_and(|previous| previous.until > at && previous.key.fence == fence);
        self.close_holding(at, client);
        self.holdings.insert(client, self.scene.holdings.len());
        let key = Holding { client, fence, again };
        self.scene.holdings.push(Span::new(key, at, until));
    }

    fn close_holding(&mut self, at: TrueTime, client: u32) {
        if let Some(index) = self.holdings.remove(&client) {
            let holding = &mut self.scene.holdings[index];
            holding.until = holding.until.min(at);
        }
    }

    fn idle(&mut self, at: TrueTime, node: u16, idle: Idle, until: TrueTime) {
        self.scene.nodes.insert(node);
        self.end_idle(at, node);
        self.idles.insert(node, self.scene.idles.len());
        self.scene.idles.push(Span::new((node, idle), at, until));
    }

    fn end_idle(&mut self, at: TrueTime, node: u16) {
        if let Some(index) = self.idles.remove(&node) {
            let idle = &mut self.scene.idles[index];
            idle.until = idle.until.min(at);
        }
    }

    fn finish(mut self) -> Scene {
        self.merge_copies();
        self.scene
    }

    /// Where the network made several messages out of one, only these arrive: the first of them
    /// stands for the one that was sent. And of those that arrive together one is enough.
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
