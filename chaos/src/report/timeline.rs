//! The picture: faults, then times without a grant, then every contended name with a line for each
//! kind of client. A red hatch marks two holders at once.

use std::collections::{BTreeMap, BTreeSet};

use paxoslease_sim::diagram::svg::{Anchor, Svg, at, width_of};

use super::ReportFacts;
use crate::check::{FaultGaps, Tenure, Verdict, contended, format_nanos};
use crate::log::{Kind, Nanos};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 1176.0;
const TOP: f64 = 84.0;
const LINE: f64 = 17.0;
const BAR: f64 = 13.0;
const LABEL: f64 = 11.5;
const SPAN_MAX: Nanos = 60_000_000_000;
/// The time around a violation in the picture.
const SPAN_OF_VIOLATION: Nanos = 10_000_000_000;
/// The most marked violations and overlaps: more would hide the rest.
const MARKED_MAX: usize = 5;
const HATCHED_MAX: u32 = 12;
/// The shortest time without a grant that gets a bar.
const GAP_MIN: Nanos = 500_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub from: Nanos,
    pub to: Nanos,
}

impl Window {
    /// Around the first violation, or the longest gap of a fault, or the begin.
    pub fn of_interest(verdict: &Verdict) -> Self {
        let (first, last) = verdict.span;
        let gaps = verdict.gaps.iter().filter(|gaps| gaps.what.is_some());
        let gap = gaps.filter_map(FaultGaps::longest).max().map(|gap| gap.from);
        let centre = verdict.violations.first().map(|violation| violation.at).or(gap);
        let span = if verdict.violations.is_empty() { SPAN_MAX } else { SPAN_OF_VIOLATION };
        let span = span.min(last - first);
        let begin = centre.unwrap_or(first).saturating_sub(span / 2);
        let from = begin.clamp(first, last - span);
        Self { from, to: from + span }
    }

    fn meets(self, from: Nanos, to: Nanos) -> bool {
        from < self.to && self.from < to
    }

    fn x(self, instant: Nanos) -> f64 {
        let instant = instant.clamp(self.from, self.to);
        let share = (instant - self.from) as f64 / (self.to - self.from).max(1) as f64;
        LEFT + share * (RIGHT - LEFT)
    }
}

pub(super) fn draw(facts: &ReportFacts, verdict: &Verdict, window: Window) -> String {
    let shown: Vec<&Tenure> =
        verdict.tenures.iter().filter(|held| window.meets(held.from, held.to)).collect();
    let faults: Vec<_> =
        verdict.health.faults.iter().filter(|fault| window.meets(fault.from, fault.to)).collect();
    let kinds: BTreeSet<&str> = faults.iter().map(|fault| fault.what.as_str()).collect();
    let names = contended(&verdict.tenures);
    let alarms: Vec<_> = verdict
        .violations
        .iter()
        .filter(|violation| (window.from..=window.to).contains(&violation.at))
        .take(MARKED_MAX)
        .collect();
    let lines = kinds.len() as f64 + 1.5 + names.len() as f64 * 4.6;
    let bottom = TOP + lines * LINE + 8.0;
    let height = bottom + 46.0 + 20.0 * alarms.len() as f64;
    let title = format!("Who held what while things broke: seed {}", facts.seed);
    let caption = format!(
        "{} nodes; {} of {}; {} tenures, {} faults in this stretch; {}",
        facts.nodes,
        format_nanos(window.to - window.from),
        format_nanos(verdict.span.1 - verdict.span.0),
        shown.len(),
        faults.len(),
        if verdict.violations.is_empty() { "no violation in the run" } else { "VIOLATIONS" },
    );
    let mut svg = Svg::new(WIDTH, height, &title, &caption);
    svg.text("title", at(20.0, 32.0), Anchor::Start, &title);
    svg.text("caption", at(20.0, 56.0), Anchor::Start, &caption);
    let mut painter = Painter { svg, window, y: TOP, hatched: 0 };
    painter.grid(verdict.span.0, bottom);
    for kind in kinds {
        painter.label("small", kind);
        for fault in faults.iter().filter(|fault| fault.what == kind) {
            let hover = format!("{kind}: {}, {}", fault.whom, format_nanos(fault.to - fault.from));
            painter.bar("silent", fault.from, fault.to, &fault.whom, &hover);
        }
        painter.y += LINE;
    }
    painter.gaps(verdict);
    for name in names {
        painter.name(name, &shown);
    }
    for violation in &alarms {
        let x = window.x(violation.at);
        painter.svg.line("alarm-line", at(x, TOP - 10.0), at(x, bottom));
    }
    for (violation, y) in alarms.iter().zip(0..) {
        let text = format!("{} ({})", violation.rule, violation.name);
        let y = bottom + 44.0 + 20.0 * f64::from(y);
        painter.svg.text("alarm", at(LEFT, y), Anchor::Start, &text);
    }
    painter.svg.finish()
}

struct Painter {
    svg: Svg,
    window: Window,
    /// The top of the current line.
    y: f64,
    /// How many overlaps are marked.
    hatched: u32,
}

impl Painter {
    fn grid(&mut self, first: Nanos, bottom: f64) {
        let span = (self.window.to - self.window.from) as f64 / 1e9;
        let step = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0].into_iter().find(|step| span / step <= 14.0);
        let step = (step.unwrap_or(10.0) * 1e9) as Nanos;
        let begin = (self.window.from - first).div_ceil(step) * step;
        for instant in (begin..=self.window.to - first).step_by(step as usize) {
            let x = self.window.x(first + instant);
            self.svg.line("grid", at(x, TOP - 6.0), at(x, bottom));
            let text = format!("{} s", instant as f64 / 1e9);
            self.svg.text("small", at(x, bottom + 16.0), Anchor::Middle, &text);
        }
    }

    fn label(&mut self, class: &str, text: &str) {
        self.svg.text(class, at(LEFT - 10.0, self.y + BAR - 2.0), Anchor::End, text);
    }

    /// A bar, with a text in it if it fits.
    fn bar(&mut self, class: &str, from: Nanos, to: Nanos, text: &str, hover: &str) {
        let (left, right) = (self.window.x(from), self.window.x(to));
        self.svg.rect(class, at(left, self.y), at(right, self.y + BAR), hover);
        if width_of(text, LABEL) + 6.0 < right - left {
            let middle = at((left + right) / 2.0, self.y + BAR - 2.5);
            // A hatch would cross it.
            let class = if class.starts_with("bar") { "small" } else { "small halo" };
            self.svg.text(class, middle, Anchor::Middle, text);
        }
    }

    fn gaps(&mut self, verdict: &Verdict) {
        self.y += LINE / 4.0;
        self.label("small", "no grant at all");
        let grants = verdict.tenures.iter().map(|held| held.from);
        let mut before = verdict.span.0;
        for grant in grants.chain([verdict.span.1]) {
            let gap = grant.saturating_sub(before);
            if gap >= GAP_MIN && self.window.meets(before, grant) {
                let hover = format!("{} without a grant", format_nanos(gap));
                self.bar("paused", before, grant, &format_nanos(gap), &hover);
            }
            before = before.max(grant);
        }
        self.y += LINE * 1.25;
    }

    /// A line per kind of client.
    fn name(&mut self, name: &str, shown: &[&Tenure]) {
        let top = self.y;
        self.svg.text("lane", at(20.0, top + 2.0 * LINE + 4.0), Anchor::Start, name);
        let mut lines: BTreeMap<Kind, f64> = BTreeMap::new();
        for kind in Kind::ALL {
            self.label("small", &kind.to_string());
            lines.insert(kind, self.y);
            self.y += LINE;
        }
        let below = self.y + 0.6 * LINE;
        let held: Vec<&&Tenure> = shown.iter().filter(|held| held.name == name).collect();
        for tenure in &held {
            let place = Kind::ALL.iter().position(|kind| *kind == tenure.kind).unwrap_or(0);
            let hover = format!(
                "{} held {name} for {} with fence {}",
                tenure.client,
                format_nanos(tenure.to.saturating_sub(tenure.from)),
                tenure.fence,
            );
            self.y = lines[&tenure.kind];
            let class = format!("bar t{place}");
            // The line shows the kind already.
            let who = tenure.client.rsplit('-').next().unwrap_or_default();
            self.bar(&class, tenure.from, tenure.to, who, &hover);
        }
        let mut before: Option<&Tenure> = None;
        for tenure in held {
            if let Some(first) = before
                && tenure.from < first.to
                && self.hatched < HATCHED_MAX
            {
                self.hatched += 1;
                let (left, right) =
                    (self.window.x(tenure.from), self.window.x(first.to.min(tenure.to)));
                let to = at(right.max(left + 3.0), top + 4.0 * LINE);
                let hover = format!("{} and {} at once", first.client, tenure.client);
                self.svg.rect("both", at(left, top - 2.0), to, &hover);
            }
            if before.is_none_or(|first| first.to < tenure.to) {
                before = Some(tenure);
            }
        }
        self.y = below;
    }
}
