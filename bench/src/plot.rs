//! Plots as SVG: white background, so that they can be read on any page, labelled axes, and a
//! legend beside the lines, never on them. Series differ in marker and dash as well as in colour.

mod bars;

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

pub use bars::{Bar, Bars};

const HEIGHT: u32 = 420;
const PANEL_WIDTH: u32 = 620;
const PANELS_WIDTH: u32 = 330;
const LEGEND_WIDTH: u32 = 300;
const FONT: &str = "Helvetica, Arial, sans-serif";
const INK: RGBColor = RGBColor(0x1f, 0x29, 0x33);
/// More lines would not be counted by anybody.
const STEPS_MAX: f64 = 6.0;
const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);

/// What stands at every point of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// A disc.
    Circle,
    /// A square on its side.
    Square,
    /// A triangle on its base.
    Triangle,
    /// A square on its corner.
    Diamond,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Red, green and blue.
    pub colour: (u8, u8, u8),
    /// At every point.
    pub marker: Marker,
    /// Dashed, with hollow markers.
    pub dashed: bool,
}

impl Look {
    /// The same, dashed or not.
    #[must_use]
    pub const fn dashed_if(self, dashed: bool) -> Self {
        Self { dashed, ..self }
    }

    const fn paint(self) -> RGBColor {
        let (r, g, b) = self.colour;
        RGBColor(r, g, b)
    }

    fn stroke(self) -> ShapeStyle {
        self.paint().stroke_width(2)
    }

    /// The marker's corners around the origin, in pixels.
    fn corners(self) -> Vec<(i32, i32)> {
        match self.marker {
            Marker::Circle => {
                let corner = |turn: u32| {
                    let (sin, cos) = (f64::from(turn) * std::f64::consts::PI / 12.0).sin_cos();
                    ((cos * 6.0).round() as i32, (sin * 6.0).round() as i32)
                };
                (0..24).map(corner).collect()
            }
            Marker::Square => vec![(-5, -5), (5, -5), (5, 5), (-5, 5)],
            Marker::Triangle => vec![(0, -6), (6, 5), (-6, 5)],
            Marker::Diamond => vec![(0, -7), (7, 0), (0, 7), (-7, 0)],
        }
    }
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// In order.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub look: Look,
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
    /// Steps of the same length.
    pub fn even(label: &'static str, ticks: impl Into<Vec<f64>>) -> Self {
        Self { label, ticks: ticks.into(), log: false, name: short }
    }

    /// Steps of the same factor.
    pub fn log(label: &'static str, ticks: impl Into<Vec<f64>>) -> Self {
        Self { log: true, ..Self::even(label, ticks) }
    }

    /// A power of ten at either end and each between, so that all of these are on it.
    pub fn decades(label: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let logs: Vec<f64> =
            values.into_iter().filter(|value| *value > 0.0).map(f64::log10).collect();
        let first = logs.iter().copied().fold(f64::INFINITY, f64::min).min(6.0).floor() as i32;
        let last = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(-3.0).ceil() as i32;
        let ticks: Vec<f64> = (first..=last.max(first + 1)).map(|ten| 10_f64.powi(ten)).collect();
        Self::log(label, ticks)
    }

    /// Even steps from nothing to beyond all of these, in round numbers.
    pub fn from_zero(label: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let ten = 10_f64.powf((most / STEPS_MAX).log10().floor());
        let mut steps = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * ten);
        let step = steps.find(|step| most / step <= STEPS_MAX).unwrap_or(10.0 * ten);
        let last = (most / step).ceil() as u32;
        let ticks: Vec<f64> = (0..=last).map(|tick| f64::from(tick) * step).collect();
        Self::even(label, ticks)
    }

    /// Shares of all, from half of them to all but one in ten thousand, each nine as far from the
    /// next. Points are at one divided by the share that is left.
    pub fn nines(label: &'static str) -> Self {
        let name = |left: f64| format!("p{}", 100.0 - 100.0 / left);
        Self { name, ..Self::log(label, [2.0, 10.0, 100.0, 1000.0, 10_000.0]) }
    }

    fn ends(&self) -> (f64, f64) {
        (self.ticks[0], self.ticks[self.ticks.len() - 1])
    }

    /// How far along the axis a value is, with a little room at both ends.
    fn share(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.log10() } else { value };
        let (first, last) = self.ends();
        let value = scale(value.clamp(first, last));
        0.03 + 0.94 * (value - scale(first)) / (scale(last) - scale(first))
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        let (first, last) = self.ends();
        first..last
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.name)(*value)
    }
}

/// With as few digits as an axis needs.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e4.. => format!("{} k", value / 1e3),
        _ => value.to_string(),
    }
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, and told in the legend.
    pub series: Vec<Series>,
}

impl Chart {
    /// As a file of its own.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn svg(self) -> anyhow::Result<String> {
        panels(&[self])
    }

    fn draw(&self, area: &Area<'_>, with_y_label: bool) -> anyhow::Result<()> {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 23).into_font().color(&INK))
            .margin(12)
            .margin_right(20)
            .x_label_area_size(54)
            .y_label_area_size(if with_y_label { 76 } else { 46 })
            .build_cartesian_2d(self.x.clone(), self.y.clone())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_labels(self.x.ticks.len())
            .y_labels(self.y.ticks.len())
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(INK.stroke_width(1))
            .label_style((FONT, 17).into_font().color(&INK))
            .axis_desc_style((FONT, 18).into_font().color(&INK))
            .x_desc(self.x.label)
            .y_desc(if with_y_label { self.y.label } else { "" })
            .draw()
            .map_err(failed)?;
        for Series { points, look, .. } in &self.series {
            if look.dashed {
                let dashes = DashedLineSeries::new(points.clone(), 7, 5, look.stroke());
                chart.draw_series(dashes).map_err(failed)?;
            } else {
                let line = LineSeries::new(points.clone(), look.stroke());
                chart.draw_series(line).map_err(failed)?;
            }
            for place in points {
                let inside = if look.dashed { WHITE.filled() } else { look.stroke().filled() };
                let filled = EmptyElement::at(*place) + Polygon::new(look.corners(), inside);
                chart.draw_series([filled]).map_err(failed)?;
                let outline =
                    EmptyElement::at(*place) + PathElement::new(ring(*look), look.stroke());
                chart.draw_series([outline]).map_err(failed)?;
            }
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Plots beside each other, with the legend of the first for all.
///
/// # Errors
/// When they cannot be drawn.
pub fn panels(charts: &[Chart]) -> anyhow::Result<String> {
    let count = charts.len() as u32;
    let each = if count == 1 { PANEL_WIDTH } else { PANELS_WIDTH };
    let mut svg = String::new();
    {
        let size = (each * count + LEGEND_WIDTH, HEIGHT);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (plots, legend) = area.split_horizontally(each * count);
        let areas = plots.split_evenly((1, charts.len()));
        for (place, (chart, area)) in charts.iter().zip(&areas).enumerate() {
            chart.draw(area, place == 0)?;
        }
        draw_legend(&legend, &charts[0].series)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn draw_legend(area: &Area<'_>, series: &[Series]) -> anyhow::Result<()> {
    for (Series { name, look, .. }, y) in series.iter().zip((70..).step_by(28)) {
        let (from, to) = ((4, y), (44, y));
        let dashes: &[(i32, i32)] =
            if look.dashed { &[(4, 12), (17, 31), (36, 44)] } else { &[(4, 44)] };
        for (left, right) in dashes {
            let line = PathElement::new([(*left, y), (*right, y)], look.stroke());
            area.draw(&line).map_err(failed)?;
        }
        let centre = ((from.0 + to.0) / 2, y);
        let inside = if look.dashed { WHITE.filled() } else { look.stroke().filled() };
        area.draw(&(EmptyElement::at(centre) + Polygon::new(look.corners(), inside)))
            .map_err(failed)?;
        area.draw(&(EmptyElement::at(centre) + PathElement::new(ring(*look), look.stroke())))
            .map_err(failed)?;
        let style = (FONT, 17).into_font().color(&INK);
        area.draw(&Text::new(name.clone(), (54, y - 8), style)).map_err(failed)?;
    }
    Ok(())
}

/// A marker's outline, closed.
fn ring(look: Look) -> Vec<(i32, i32)> {
    let mut corners = look.corners();
    corners.push(corners[0]);
    corners
}

/// Drawing into a text fails only for reasons that have no type worth keeping.
fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}
