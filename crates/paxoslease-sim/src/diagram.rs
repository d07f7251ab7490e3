//! Renders a trace as a space-time diagram in SVG, after the paper's second figure: time runs to
//! the right, each node has a line, and messages are arrows between the lines. A bar on an
//! acceptor's line is a stored lease. A bar on a client's line below is a belief, so two holders at
//! once are two bars above each other.
//!
//! The same trace gives the same picture. Nothing is shown by colour alone, and the only
//! interaction is a text on hovering.

mod labels;
mod scene;
pub mod svg;
mod timeline;

use std::collections::BTreeMap;

use self::labels::{ANY, Labels, Place};
use self::scene::{Arrow, End, Held, Idle, Scene, Span};
use self::svg::{Anchor, Point, Svg, TENURE_COLOURS, at, width_of};
use self::timeline::Timeline;
use crate::trace::{Entry, TrueTime};

const LEFT: f64 = 112.0;
const RIGHT_MARGIN: f64 = 48.0;
const NODE_APART: f64 = 128.0;
const CLIENT_APART: f64 = 66.0;
/// Half the height of a bar.
const BAR: f64 = 11.5;
const TEXT: f64 = 14.0;
const TEXT_SMALL: f64 = 12.5;
/// Where the lines of the picture begin, below the heading.
const TOP: f64 = 84.0;

/// The part of a trace to render, and its heading.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RenderOptions {
    /// The heading.
    pub title: String,
    /// A sentence below it.
    pub caption: String,
    /// The name to show; by default that of the first violation, else the first name.
    pub name: Option<String>,
    /// The period to show; by default the whole trace.
    pub window: Option<(TrueTime, TrueTime)>,
}

/// Renders a trace.
#[must_use]
pub fn render(entries: &[Entry], options: &RenderOptions) -> String {
    let name = options.name.clone().unwrap_or_else(|| scene::subject(entries));
    let scene = Scene::read(entries, &name, options.window);
    let timeline = Timeline::new(LEFT + 16.0, scene.instants(), scene.flight());
    let mut painter = Painter::new(&scene, timeline, options);
    painter.background();
    painter.leases();
    painter.idles();
    painter.holdings();
    painter.overlaps();
    painter.asks();
    painter.arrows();
    painter.write_in_bars();
    painter.label_arrows();
    painter.promises();
    painter.violations();
    painter.notes();
    painter.legend();
    painter.svg.finish()
}

struct Painter<'a> {
    scene: &'a Scene,
    timeline: Timeline,
    svg: Svg,
    labels: Labels,
    width: f64,
    node_y: BTreeMap<u16, f64>,
    client_y: BTreeMap<u32, f64>,
    /// The axis.
    axis_y: f64,
    /// The index of each tenure's colour.
    colours: BTreeMap<u64, usize>,
    /// Texts for bars, written after all bars.
    in_bars: Vec<(Point, String)>,
}

impl<'a> Painter<'a> {
    fn new(scene: &'a Scene, timeline: Timeline, options: &RenderOptions) -> Self {
        let header_width = width_of(&options.title, 23.0).max(width_of(&options.caption, 15.0));
        let width = (timeline.right() + RIGHT_MARGIN).max(header_width + 40.0).max(980.0);
        let mut y = TOP + 46.0;
        let mut lane = |apart: f64| {
            let here = y;
            y += apart;
            here
        };
        let node_y: BTreeMap<u16, f64> =
            scene.nodes.iter().map(|node| (*node, lane(NODE_APART))).collect();
        lane(-26.0);
        let client_y: BTreeMap<u32, f64> =
            scene.clients.iter().map(|client| (*client, lane(CLIENT_APART))).collect();
        let axis_y = y - 12.0;
        let height = axis_y + 74.0 + 22.0 * scene.violations.len() as f64;
        let title = if options.title.is_empty() { "Space-time diagram" } else { &options.title };
        let mut svg = Svg::new(width, height, title, &options.caption);
        svg.text("title", at(20.0, 34.0), Anchor::Start, title);
        svg.text("caption", at(20.0, 60.0), Anchor::Start, &options.caption);
        let fences = scene.leases.iter().map(|span| span.key.fence);
        let mut colours = BTreeMap::new();
        for fence in fences.chain(scene.holdings.iter().map(|span| span.key.fence)) {
            let next = colours.len() % TENURE_COLOURS;
            colours.entry(fence).or_insert(next);
        }
        Self {
            scene,
            timeline,
            svg,
            labels: Labels::default(),
            width,
            node_y,
            client_y,
            axis_y,
            colours,
            in_bars: Vec::new(),
        }
    }

    fn x(&self, instant: TrueTime) -> f64 {
        self.timeline.x(instant)
    }

    /// Breaks of the axis, the axis itself, and the lines of nodes and clients.
    fn background(&mut self) {
        let (top, axis_y, right) = (TOP, self.axis_y, self.timeline.right());
        for (from_x, to_x) in self.timeline.breaks() {
            self.svg.rect("gap", at(from_x, top), at(to_x, axis_y), "not to scale");
            let middle = (from_x + to_x) / 2.0;
            for x in [middle - 3.0, middle + 3.0] {
                self.svg.line("line", at(x - 4.0, axis_y + 7.0), at(x + 4.0, axis_y - 7.0));
            }
        }
        let apart = width_of(&millis(self.scene.to), TEXT_SMALL) + 14.0;
        for (instant, x) in self.timeline.ticks(apart.max(44.0)) {
            self.svg.line("grid", at(x, top), at(x, axis_y));
            self.svg.line("line", at(x, axis_y), at(x, axis_y + 5.0));
            let text = millis(instant);
            self.svg.text("small", at(x, axis_y + 20.0), Anchor::Middle, &text);
        }
        self.svg.line("line", at(LEFT, axis_y), at(right + 10.0, axis_y));
        self.svg.text("small", at(LEFT - 12.0, axis_y + 20.0), Anchor::End, "true time, ms");
        for (node, y) in &self.node_y {
            self.svg.text("lane", at(20.0, y + 5.0), Anchor::Start, &format!("node {node}"));
            self.svg.line("line", at(LEFT, *y), at(right + 10.0, *y));
        }
        for (client, y) in &self.client_y {
            self.svg.text("lane", at(20.0, y + 5.0), Anchor::Start, &format!("client {client}"));
            self.svg.line("grid", at(LEFT, *y), at(right + 10.0, *y));
        }
    }

    /// Crashes, stops, quarantines and pauses.
    fn idles(&mut self) {
        for span in &self.scene.idles {
            let (node, idle) = span.key;
            let Some(&y) = self.node_y.get(&node) else { continue };
            let (from, until) = (self.x(span.from), self.x(span.until));
            let (corner, opposite) = (at(from, y - BAR), at(until, y + BAR));
            let text = match idle {
                Idle::Crashed => "crashed",
                Idle::Stopped => "stopped",
                Idle::Paused => "paused",
                Idle::Quarantined => "quarantine: silent",
            };
            match idle {
                Idle::Crashed => {
                    self.silence(from, until, y);
                    self.svg.cross("cross", at(from, y), 7.0);
                }
                Idle::Stopped => {
                    self.silence(from, until, y);
                    self.svg.rect("dot", at(from - 5.0, y - 5.0), at(from + 5.0, y + 5.0), text);
                }
                Idle::Paused => self.svg.rect("paused", corner, opposite, text),
                Idle::Quarantined => {
                    self.svg.rect("silent", corner, opposite, text);
                    self.in_bar(at(from, y), at(until, y), &[text, "quarantine", "silent"]);
                    continue;
                }
            }
            self.write("halo", [-17.0, 27.0].map(|dy| at(from + 8.0, y + dy)), text);
        }
    }

    /// Writes a text at the best of these places.
    fn write<const N: usize>(&mut self, class: &str, centres: [Point; N], text: &str) {
        if let Some(place) = self.labels.place(centres.map(Place::level), text, TEXT, ANY) {
            self.svg.text(class, place.centre, Anchor::Middle, text);
        }
    }

    /// Dots in place of a node's line.
    fn silence(&mut self, from: f64, until: f64, y: f64) {
        self.svg.line("eraser", at(from, y), at(until, y));
        self.svg.line("line down", at(from, y), at(until, y));
    }

    /// The leases stored by acceptors.
    fn leases(&mut self) {
        for span in &self.scene.leases {
            let key = span.key;
            let Some(&y) = self.node_y.get(&key.line) else { continue };
            let fence = ballot(key.fence);
            let verb = if key.again { "renewed" } else { "stored" };
            let until_text = millis(span.stated);
            let hover = format!("node {} stores {fence} until {until_text} ms", key.line);
            let long = format!("{fence} {verb} until {until_text}");
            self.bar(span, y, BAR, &hover, &[&long, &format!("{fence} {verb}"), &fence]);
        }
    }

    /// The beliefs of clients.
    fn holdings(&mut self) {
        for span in &self.scene.holdings {
            let key = span.key;
            let Some(&y) = self.client_y.get(&key.line) else { continue };
            let fence = ballot(key.fence);
            let verb = if key.again { "still holds" } else { "holds" };
            let until_text = millis(span.stated);
            let long = format!("client {} {verb}, fence {fence}, until {until_text}", key.line);
            let (short, shorter) = (format!("{verb}, fence {fence}"), format!("fence {fence}"));
            self.bar(span, y, BAR + 2.0, &long, &[&long, &short, &shorter, &fence]);
        }
    }

    /// A bar in the colour of a tenure, with a text on hovering and the longest text that fits.
    fn bar<L>(&mut self, span: &Span<Held<L>>, y: f64, half: f64, hover: &str, texts: &[&str]) {
        let (from, until) = (self.x(span.from), self.x(span.until));
        let class = format!("bar t{}", self.colours[&span.key.fence]);
        self.svg.rect(&class, at(from, y - half), at(until, y + half), hover);
        self.in_bar(at(from, y), at(until, y), texts);
    }

    /// Where two clients hold the lease at once.
    fn overlaps(&mut self) {
        for overlap in self.scene.overlaps() {
            let (one, other) = overlap.key;
            let (Some(&top), Some(&bottom)) = (self.client_y.get(&one), self.client_y.get(&other))
            else {
                continue;
            };
            let (from, until) = (self.x(overlap.from), self.x(overlap.until));
            let text = if one == other { "two tenures at once" } else { "TWO HOLDERS" };
            let corner = at(from, top - BAR - 6.0);
            self.svg.rect("both", corner, at(until, bottom + BAR + 6.0), text);
            let centre = at((from + until) / 2.0, (top + bottom) / 2.0 + 5.0);
            self.labels.reserve(Place::level(centre), text, TEXT);
            self.svg.text("alarm halo", centre, Anchor::Middle, text);
        }
    }

    /// Puts the longest text that fits into a bar.
    fn in_bar(&mut self, from: Point, until: Point, texts: &[&str]) {
        let room = until.x - from.x - 8.0;
        let Some(text) = texts.iter().find(|text| width_of(text, TEXT) * 1.06 <= room) else {
            return;
        };
        let centre = at((from.x + until.x) / 2.0, from.y + 5.0);
        self.labels.reserve(Place::level(centre), text, TEXT);
        self.in_bars.push((centre, (*text).to_owned()));
    }

    fn write_in_bars(&mut self) {
        for (centre, text) in std::mem::take(&mut self.in_bars) {
            self.svg.text("in halo", centre, Anchor::Middle, &text);
        }
    }

    /// The requests of clients.
    fn asks(&mut self) {
        for ask in &self.scene.asks {
            let (client, node) = ask.key;
            let Some(&y) = self.client_y.get(&client) else { continue };
            let x = self.x(ask.at);
            if let Some(&node_y) = self.node_y.get(&node) {
                self.svg.line("ask", at(x, y), at(x, node_y));
                self.svg.dot("dot", at(x, node_y), 3.0);
            }
            self.svg.dot("dot", at(x, y), 4.0);
            let text = format!("{} at node {node}", ask.text);
            let half = width_of(&text, TEXT) / 2.0;
            self.write("halo", [30.0, -20.0].map(|dy| at(x + half - 4.0, y + dy)), &text);
        }
    }

    /// The two ends of an arrow, clear of the bars.
    fn ends(&self, arrow: &Arrow) -> Option<(Point, Point)> {
        let (from_y, to_y) = (*self.node_y.get(&arrow.from)?, *self.node_y.get(&arrow.to)?);
        let x = self.x(arrow.sent_at);
        let toward = (to_y - from_y).signum();
        let flight = self.scene.flight().map_or(80.0, |nanos| self.timeline.width_of(nanos));
        let from = at(x, from_y + toward * BAR * 0.5);
        let to = at(x, to_y - toward * BAR);
        Some(match arrow.end {
            End::Delivered(when) => (from, at(self.x(when), to.y)),
            // The slope of the other arrows, up to shortly before its end.
            End::Lost(_) | End::OnItsWay => {
                let share = 1.0 - 0.28 * NODE_APART / (to_y - from_y).abs().max(NODE_APART);
                (from, at(x + flight * share, from.y + (to.y - from.y) * share))
            }
        })
    }

    /// The arrows to render, with their ends.
    fn drawn(&self) -> Vec<(&'a Arrow, Point, Point)> {
        let arrows = self.scene.arrows.iter().filter(|arrow| arrow.from != arrow.to);
        arrows.filter_map(|arrow| self.ends(arrow).map(|(from, to)| (arrow, from, to))).collect()
    }

    fn arrows(&mut self) {
        for (arrow, from, to) in &self.drawn() {
            self.labels.avoid(*from, *to);
            let again = if arrow.duplicate { " again" } else { "" };
            match arrow.end {
                End::Delivered(_) => self.svg.arrow(&format!("message{again}"), *from, *to),
                End::Lost(_) => {
                    self.svg.line(&format!("lost{again}"), *from, *to);
                    self.svg.cross("cross", *to, 5.0);
                }
                End::OnItsWay => {
                    self.svg.line(&format!("message{again}"), *from, *to);
                    self.svg.dot("tick", *to, 2.5);
                }
            }
        }
    }

    /// The texts of arrows, where there is room.
    fn label_arrows(&mut self) {
        let mut told: Vec<(TrueTime, u16, String)> = Vec::new();
        for (arrow, from, to) in &self.drawn() {
            let text = shortened(&arrow.text).replace(", promised ", " < ");
            let mut ending = String::new();
            if arrow.copies > 1 {
                ending += &format!(" ×{}", arrow.copies);
            }
            ending += match arrow.end {
                End::Lost(_) => " (lost)",
                End::OnItsWay => " (late)",
                End::Delivered(_) if arrow.duplicate => " (again)",
                End::Delivered(_) => "",
            };
            // A broadcast has the same text on each arrow. One is enough where there is no room.
            let key = (arrow.sent_at, arrow.from, text.clone() + &ending);
            let told_already = told.contains(&key);
            // Prefers a short text to one across another text, and no text to that, unless the
            // message was lost or late.
            let most = if ending.is_empty() { 1 } else { ANY };
            let brief = text.split([',', '<']).next().unwrap_or(&text).trim_end();
            for (text, covered_max) in [(text.as_str(), 0), (brief, 0), (brief, most)] {
                let text = format!("{text}{ending}");
                let places = beside(*from, *to, width_of(&text, TEXT));
                let covered_max = if told_already { 0 } else { covered_max };
                if let Some(place) = self.labels.place(places, &text, TEXT, covered_max) {
                    told.push(key);
                    self.svg.turned("halo", place.centre, place.angle, &text);
                    break;
                }
            }
        }
    }

    /// Promises: a tick that points at the line, with the ballot beside it.
    fn promises(&mut self) {
        for mark in &self.scene.promises {
            if let Some(&y) = self.node_y.get(&mark.key) {
                self.labels.block(at(self.x(mark.at), y - BAR - 6.0));
            }
        }
        for mark in &self.scene.promises {
            let Some(&y) = self.node_y.get(&mark.key) else { continue };
            let x = self.x(mark.at);
            let text = format!("promised {}", shortened(&mark.text));
            let half = width_of(&text, TEXT_SMALL) / 2.0 + 12.0;
            let spots = [(half, -17.0), (half, 27.0), (-half, -17.0), (-half, 27.0)];
            let places = spots.map(|(dx, dy)| Place::level(at(x + dx, y + dy)));
            let place = self.labels.place(places, &text, TEXT_SMALL, 0);
            if let Some(place) = place {
                self.svg.text("small halo", place.centre, Anchor::Middle, &text);
            }
            let below = place.is_some_and(|place| place.centre.y > y);
            let side = if below { 1.0 } else { -1.0 };
            let (tip, base) = (y + side * (BAR + 1.0), y + side * (BAR + 10.0));
            let (left, right) = (x - 5.0, x + 5.0);
            self.svg.path("tick", &format!("M{x:.1} {tip:.1}L{left:.1} {base:.1}H{right:.1}z"));
        }
    }

    fn notes(&mut self) {
        for note in &self.scene.notes {
            let Some(&y) = self.node_y.get(&note.key) else { continue };
            let x = self.x(note.at);
            let half = width_of(&note.text, TEXT) / 2.0;
            let fits_right = x + 2.0 * half < self.width - 8.0;
            let x = if fits_right { x + half } else { x - half };
            let centres = [-34.0, -18.0, 28.0, 44.0, -50.0, 60.0].map(|dy| at(x, y + dy));
            self.write("note halo", centres, &note.text);
        }
    }

    /// Violations: a numbered flag, and its text below the axis.
    fn violations(&mut self) {
        let axis_y = self.axis_y;
        let mut flags: Vec<(f64, String)> = Vec::new();
        for (index, (when, text)) in self.scene.violations.iter().enumerate() {
            let (x, number) = (self.x(*when), (index + 1).to_string());
            let y = axis_y + 48.0 + 22.0 * index as f64;
            let text = shortened(text);
            let text = format!("{number}. invariant broken at {} ms: {text}", millis(*when));
            self.svg.text("alarm", at(20.0, y), Anchor::Start, &text);
            match flags.last_mut() {
                Some((last, numbers)) if (x - *last).abs() < 1.0 => {
                    *numbers += &format!(", {number}");
                }
                _ => flags.push((x, number)),
            }
        }
        for (x, numbers) in flags {
            let half = (width_of(&numbers, TEXT) / 2.0 + 6.0).max(10.0);
            let (corner, opposite) = (at(x - half, TOP - 11.0), at(x + half, TOP + 9.0));
            self.svg.line("alarm-line", at(x, TOP), at(x, axis_y));
            self.svg.rect("alarm-fill", corner, opposite, "an invariant broke here");
            self.svg.text("flag", at(x, TOP + 4.0), Anchor::Middle, &numbers);
            self.labels.reserve(Place::level(at(x, TOP + 4.0)), &numbers, TEXT);
        }
    }

    fn legend(&mut self) {
        let y = self.axis_y + 54.0 + 22.0 * self.scene.violations.len() as f64;
        let text = "bar on a node: the lease stored there · bar on a client: its belief · \
                    triangle: promise · cross: lost or crashed · dashed or ×2: duplicate · \
                    // axis not to scale";
        let long = self.colours.keys().any(|fence| fence >> 30 > 0);
        let text = format!("{text}{}", if long { " · 1M+1 is 2^20 + 1" } else { "" });
        self.svg.text("small", at(20.0, y), Anchor::Start, &text);
    }
}

/// Places for a text along an arrow: the middle first, above and below it.
fn beside(from: Point, to: Point, width: f64) -> impl Iterator<Item = Place> {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy).max(1.0);
    // A steep arrow would turn its text almost upright: turn the text less and put it beside the
    // arrow.
    let angle = dy.atan2(dx.max(1.0)).to_degrees();
    let (sin, cos) = angle.to_radians().sin_cos();
    // Keep the text within the arrow where it is long enough.
    let reach = ((length - width) / length / 2.0).clamp(0.0, 0.5);
    let shares = [0.0, -0.5, 0.5, -1.0, 1.0].map(move |share| 0.5 + share * reach);
    shares.into_iter().flat_map(move |share| {
        [4.5, -14.5].map(|off| Place {
            centre: at(from.x + share * dx + sin * off, from.y + share * dy - cos * off),
            angle,
        })
    })
}

/// A tenure in the notation of ballots: counter, dot, node.
fn ballot(fence: u64) -> String {
    format!("{}.{}", short(fence >> 10), fence & 0x3ff)
}

/// A counter for people: after a restart it is beyond a block of 2^20 ballots.
fn short(counter: u64) -> String {
    match (counter >> 20, counter & 0xf_ffff) {
        (0, small) => small.to_string(),
        (millions, rest) => format!("{millions}M+{rest}"),
    }
}

/// A text with all long numbers shortened.
fn shortened(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[start..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        out.push_str(&rest[..start]);
        match digits[..end].parse::<u64>() {
            Ok(number) if end > 6 => out.push_str(&short(number)),
            _ => out.push_str(&digits[..end]),
        }
        rest = &digits[end..];
    }
    out + rest
}

/// Milliseconds with as many decimals as necessary.
fn millis(instant: TrueTime) -> String {
    let text = format!("{:.2}", instant.0 as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
