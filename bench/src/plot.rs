//! Plots as SVG: a white background for any page, labelled axes, and a legend beside the lines.
//! Series differ in marker and dash, not only in colour.

use paxoslease_sim::diagram::svg::{Anchor, Point, Svg, at};

const HEIGHT: f64 = 420.0;
const PANEL_WIDTH: f64 = 620.0;
const PANELS_WIDTH: f64 = 330.0;
const LEGEND_WIDTH: f64 = 300.0;
/// Margins for the title and the labels of the axes.
const TOP: f64 = 48.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 66.0;
const LEFT: f64 = 76.0;
/// Of bars.
const BAR_WIDTH: f64 = 960.0;
const BAR_HEIGHT: f64 = 30.0;
const BAR_STEP: f64 = 42.0;
const NAME_WIDTH: f64 = 315.0;
const VALUE_WIDTH: f64 = 190.0;
const BAR_TOP: f64 = 62.0;
/// The most grid lines of an axis.
const STEPS_MAX: f64 = 6.0;

/// The symbol at each point of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    pub colour: (u8, u8, u8),
    pub marker: Marker,
    /// Dashed, with hollow markers.
    pub dashed: bool,
}

impl Look {
    /// Sets whether the line is dashed.
    pub const fn dashed_if(self, dashed: bool) -> Self {
        Self { dashed, ..self }
    }

    fn colour(self) -> String {
        let (r, g, b) = self.colour;
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    fn stroke(self) -> String {
        let dashes = if self.dashed { ";stroke-dasharray:7 5" } else { "" };
        format!("fill:none;stroke:{};stroke-width:2{dashes}", self.colour())
    }

    /// Draws a marker, hollow if the line is dashed.
    fn mark(self, svg: &mut Svg, Point { x, y }: Point) {
        let colour = self.colour();
        let inside = if self.dashed { "#fff" } else { &colour };
        let corners: &[(f64, f64)] = match self.marker {
            Marker::Circle => &[],
            Marker::Square => &[(-5.0, -5.0), (5.0, -5.0), (5.0, 5.0), (-5.0, 5.0)],
            Marker::Triangle => &[(0.0, -6.0), (6.0, 5.0), (-6.0, 5.0)],
            Marker::Diamond => &[(0.0, -7.0), (7.0, 0.0), (0.0, 7.0), (-7.0, 0.0)],
        };
        let d = match corners {
            [] => format!("M{:.1} {y:.1}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0z", x - 6.0),
            corners => polyline(corners.iter().map(|(dx, dy)| at(x + dx, y + dy))) + "z",
        };
        svg.styled(&format!("fill:{inside};stroke:{colour};stroke-width:2"), &d);
    }
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub look: Look,
}

/// The y values of all points.
pub fn heights(series: &[Series]) -> Vec<f64> {
    series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y)).collect()
}

/// An axis from its first tick to its last.
#[derive(Clone, Debug)]
pub struct Axis {
    label: &'static str,
    ticks: Vec<f64>,
    log: bool,
    name: fn(f64) -> String,
}

impl Axis {
    /// A linear axis with these ticks.
    pub fn even(label: &'static str, ticks: impl Into<Vec<f64>>) -> Self {
        Self { label, ticks: ticks.into(), log: false, name: short }
    }

    /// A logarithmic axis with these ticks.
    pub fn log(label: &'static str, ticks: impl Into<Vec<f64>>) -> Self {
        Self { log: true, ..Self::even(label, ticks) }
    }

    /// A logarithmic axis with powers of ten that includes these values.
    pub fn decades(label: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let logs: Vec<f64> =
            values.into_iter().filter(|value| *value > 0.0).map(f64::log10).collect();
        let first = logs.iter().copied().fold(f64::INFINITY, f64::min).min(6.0).floor() as i32;
        let last = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(-3.0).ceil() as i32;
        let ticks: Vec<f64> = (first..=last.max(first + 1)).map(|ten| 10_f64.powi(ten)).collect();
        Self::log(label, ticks)
    }

    /// A linear axis from zero that includes these values.
    pub fn from_zero(label: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let ten = 10_f64.powf((most / STEPS_MAX).log10().floor());
        let mut steps = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * ten);
        let step = steps.find(|step| most / step <= STEPS_MAX).unwrap_or(10.0 * ten);
        let last = (most / step).ceil() as u32;
        let ticks: Vec<f64> = (0..=last).map(|tick| f64::from(tick) * step).collect();
        Self::even(label, ticks)
    }

    /// Percentiles from 50 to 99.99 with equal distances between the nines. The x value of a point
    /// is 1 / (1 - quantile).
    pub fn nines(label: &'static str) -> Self {
        let name = |left: f64| format!("p{}", 100.0 - 100.0 / left);
        Self { name, ..Self::log(label, [2.0, 10.0, 100.0, 1000.0, 10_000.0]) }
    }

    /// The position of a value on the axis from 0 to 1, with a margin at both ends.
    fn share(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.log10() } else { value };
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let value = scale(value.clamp(first, last));
        0.03 + 0.94 * (value - scale(first)) / (scale(last) - scale(first))
    }
}

fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e4.. => format!("{} k", value / 1e3),
        _ => value.to_string(),
    }
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

impl Chart {
    /// The SVG of this plot alone.
    pub fn svg(self) -> String {
        panels(&[self])
    }

    /// Draws the plot between these edges.
    fn draw(&self, svg: &mut Svg, left: f64, right: f64, with_y_label: bool) {
        let bottom = HEIGHT - BOTTOM;
        let across = |value: f64| left + self.x.share(value) * (right - left);
        let up = |value: f64| bottom - self.y.share(value) * (bottom - TOP);
        let middle = f64::midpoint(left, right);
        svg.text("lane", at(middle, 28.0), Anchor::Middle, &self.title);
        for tick in &self.x.ticks {
            let x = across(*tick);
            svg.line("grid", at(x, TOP), at(x, bottom));
            svg.text("", at(x, bottom + 20.0), Anchor::Middle, &(self.x.name)(*tick));
        }
        for tick in &self.y.ticks {
            let y = up(*tick);
            svg.line("grid", at(left, y), at(right, y));
            svg.text("", at(left - 8.0, y + 5.0), Anchor::End, &(self.y.name)(*tick));
        }
        svg.line("line", at(left, bottom), at(right, bottom));
        svg.line("line", at(left, TOP), at(left, bottom));
        svg.text("caption", at(middle, bottom + 46.0), Anchor::Middle, self.x.label);
        if with_y_label {
            svg.turned("caption", at(left - 56.0, f64::midpoint(TOP, bottom)), -90.0, self.y.label);
        }
        for Series { points, look, .. } in &self.series {
            let points: Vec<Point> = points.iter().map(|(x, y)| at(across(*x), up(*y))).collect();
            svg.styled(&look.stroke(), &polyline(points.iter().copied()));
            points.iter().for_each(|point| look.mark(svg, *point));
        }
    }
}

/// The SVG of plots beside each other, with the legend of the first one.
pub fn panels(charts: &[Chart]) -> String {
    let each = if charts.len() == 1 { PANEL_WIDTH } else { PANELS_WIDTH };
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    let width = each * charts.len() as f64;
    let mut svg = Svg::new(width + LEGEND_WIDTH, HEIGHT, &titles.join("; "), charts[0].y.label);
    for (place, chart) in charts.iter().enumerate() {
        let left = each * place as f64 + if place == 0 { LEFT } else { LEFT - 22.0 };
        chart.draw(&mut svg, left, each * (place + 1) as f64 - RIGHT, place == 0);
    }
    for (Series { name, look, .. }, row) in charts[0].series.iter().zip(0..) {
        let y = 70.0 + 28.0 * f64::from(row);
        svg.styled(&look.stroke(), &polyline([at(width + 4.0, y), at(width + 44.0, y)]));
        look.mark(&mut svg, at(width + 24.0, y));
        svg.text("", at(width + 54.0, y + 5.0), Anchor::Start, name);
    }
    svg.finish()
}

fn polyline(points: impl IntoIterator<Item = Point>) -> String {
    let points = points.into_iter().map(|Point { x, y }| format!("{x:.1} {y:.1}"));
    format!("M{}", points.collect::<Vec<_>>().join("L"))
}

/// A bar with its name before it and its value after it.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    /// The label after the bar.
    pub text: String,
    /// The colour; lighter if dashed.
    pub look: Look,
}

/// Horizontal bars on a logarithmic axis. Each bar has its label, so there is no legend.
pub fn bars(title: &str, axis: &Axis, bars: &[Bar]) -> String {
    let bottom = BAR_TOP + BAR_STEP * bars.len() as f64;
    let place =
        |value: f64| NAME_WIDTH + axis.share(value) * (BAR_WIDTH - VALUE_WIDTH - NAME_WIDTH);
    let mut svg = Svg::new(BAR_WIDTH, bottom + 62.0, title, axis.label);
    svg.text("lane", at(BAR_WIDTH / 2.0, 30.0), Anchor::Middle, title);
    for tick in &axis.ticks {
        let x = place(*tick);
        svg.line("grid", at(x, BAR_TOP - 8.0), at(x, bottom));
        svg.text("", at(x, bottom + 20.0), Anchor::Middle, &(axis.name)(*tick));
    }
    let middle = f64::midpoint(NAME_WIDTH, BAR_WIDTH - VALUE_WIDTH);
    svg.text("caption", at(middle, bottom + 46.0), Anchor::Middle, axis.label);
    for (bar, row) in bars.iter().zip(0..) {
        let top = BAR_TOP + BAR_STEP * f64::from(row);
        let (left, right, colour) = (place(axis.ticks[0]), place(bar.value), bar.look.colour());
        let opacity = if bar.look.dashed { ";fill-opacity:0.25" } else { "" };
        let style = format!("fill:{colour};stroke:{colour};stroke-width:2{opacity}");
        let wide = (right - left).max(1.0);
        svg.styled(&style, &format!("M{left:.1} {top:.1}h{wide:.1}v{BAR_HEIGHT:.1}h-{wide:.1}z"));
        let y = top + BAR_HEIGHT / 2.0 + 5.0;
        svg.text("caption", at(NAME_WIDTH - 12.0, y), Anchor::End, &bar.name);
        svg.text("caption", at(right + 10.0, y), Anchor::Start, &bar.text);
    }
    svg.finish()
}
