//! The page's sections about loads: rates, latencies, and the processor time of an operation.

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Bar, Chart, bars, heights, panels};

use super::lines;
use super::numbers::{beside_redis, count, micros, three_digits, unevenness, with_range};
use crate::case::{Case, What};
use crate::figures::{Figures, QUANTILES, Row, Turn};
use crate::side::Side;

/// The fewest operations beyond a percentile that make it meaningful.
const BEYOND_MIN: f64 = 5.0;

pub(crate) fn per_second(turn: &Turn) -> f64 {
    turn.per_second
}

pub(crate) fn fill(page: &mut Page, figures: &Figures) {
    let pairs = |in_flight| Case::new(What::Pairs, in_flight);
    let own = |in_flight| Case::new(What::OwnConnections, in_flight);
    let renewals = |in_flight| Case::new(What::Renewals, in_flight);
    headline(page, figures);
    let some = [("1 in flight", pairs(1)), ("64", pairs(64)), ("512", pairs(512))];
    rates(page, figures, "pairs", &some);
    security(page, figures, &some);
    let spread = [("64, spread", pairs(64).spread()), ("512, spread", pairs(512).spread())];
    rates(page, figures, "pairs_spread", &spread);
    curve(page, figures);
    rates(page, figures, "own_connections", &[("64 clients", own(64)), ("512 clients", own(512))]);
    let awake = |in_flight| Case::new(What::Awake, in_flight);
    rates(page, figures, "awake", &[("1 in flight", awake(1)), ("64", awake(64))]);
    rates(page, figures, "contended", &[("64 in flight", Case::new(What::Mixed, 64))]);
    latency(page, figures, &[&some[..], &[("1, cores awake", awake(1))]].concat());
    let some = [("64 in flight", renewals(64)), ("512 in flight", renewals(512))];
    rates(page, figures, "renewals", &some);
    handovers(page, figures);
    let some = [
        ("pair, 1 in flight", pairs(1)),
        ("pair, 64", pairs(64)),
        ("pair, 512", pairs(512)),
        ("pair, a connection each, 64", own(64)),
        ("renewal, 64", renewals(64)),
        ("renewal, 512", renewals(512)),
    ];
    let head = |name: &str| vec![name.to_owned()];
    table(page, figures, "cost", &some, head, |side, case| {
        let cost = |row: &Row| micros(row.median(|turn| turn.cpu_us));
        vec![figures.row(side, case).map(cost).unwrap_or_default()]
    });
}

/// What TLS and tokens cost, beside the same cell without them.
fn security(page: &mut Page, figures: &Figures, cases: &[(&str, Case)]) {
    let head = |case: &str| {
        let first = format!("{case}: pairs/s");
        [&first, "factor", "processor time", "generator"].map(str::to_owned).into()
    };
    let secured = Side::all().filter(|side| side.is_secured());
    let secured: Vec<Side> =
        secured.filter(|side| figures.row(*side, cases[0].1).is_some()).collect();
    if secured.is_empty() {
        return;
    }
    let sides = [&[Side::Ours], &secured[..]].concat();
    table_of(page, sides, "security", cases, head, |side, case| {
        let row = figures.row(side, case);
        let rate = row.and_then(|row| row.spread(per_second));
        let ratio = figures.ratio((side, case), (Side::Ours, case), per_second);
        let ratio = ratio.filter(|_| side != Side::Ours);
        let cost = row.map(|row| micros(row.median(|turn| turn.cpu_us)));
        vec![
            rate.map(|rate| with_range(rate, count)).unwrap_or_default(),
            ratio.map(|ratio| with_range(ratio, three_digits)).unwrap_or_default(),
            cost.unwrap_or_default(),
            generator(figures, side, case),
        ]
    });
}

/// A row for each side that has any of these cases. A case has one or more columns.
fn table(
    page: &mut Page,
    figures: &Figures,
    name: &str,
    cases: &[(&str, Case)],
    head_of: impl Fn(&str) -> Vec<String>,
    cells: impl Fn(Side, Case) -> Vec<String>,
) {
    table_of(page, figures.sides(), name, cases, head_of, cells);
}

fn table_of(
    page: &mut Page,
    sides: Vec<Side>,
    name: &str,
    cases: &[(&str, Case)],
    head_of: impl Fn(&str) -> Vec<String>,
    cells: impl Fn(Side, Case) -> Vec<String>,
) {
    let mut head = vec![String::new()];
    head.extend(cases.iter().flat_map(|(case, _)| head_of(case)));
    let rows = sides.into_iter().filter_map(|side| {
        let cells: Vec<String> = cases.iter().flat_map(|(_, case)| cells(side, *case)).collect();
        let has_some = cells.iter().any(|cell| !cell.is_empty());
        has_some.then(|| std::iter::once(side.title().to_owned()).chain(cells).collect())
    });
    page.table(name, &head, rows);
}

/// Rates with their range, their ratio to one Redis under the same load, and the cost of the load.
fn rates(page: &mut Page, figures: &Figures, name: &str, cases: &[(&str, Case)]) {
    let is_renewal = |case: Case| case.what == What::Renewals;
    let unit = if is_renewal(cases[0].1) { "renewals/s" } else { "pairs/s" };
    let head =
        |case: &str| vec![format!("{case}: {unit}"), "beside Redis".into(), "generator".into()];
    table(page, figures, name, cases, head, |side, case| {
        let rate = figures.row(side, case).and_then(|row| row.spread(per_second));
        let ratio = figures.ratio((side, case), (Side::Redis, case.to_one()), per_second);
        let ratio = ratio.filter(|_| !is_renewal(case) || side.renews_one());
        let beside = match ratio {
            Some(_) if side == Side::Redis => "1".to_owned(),
            Some(ratio) => with_range(ratio, three_digits),
            None => String::new(),
        };
        let rate = rate.map(|rate| with_range(rate, count)).unwrap_or_default();
        vec![rate, beside, generator(figures, side, case)]
    });
}

/// The processor time of the load generator per operation.
fn generator(figures: &Figures, side: Side, case: Case) -> String {
    let row = figures.row(side, case);
    row.map(|row| micros(row.median(|turn| turn.load_cpu_us))).unwrap_or_default()
}

fn headline(page: &mut Page, figures: &Figures) {
    let case = Case::new(What::Pairs, 512);
    let one = figures.sides().into_iter().map(|side| (side, case, side.title().to_owned()));
    let spread = figures.sides().into_iter().filter(|side| side.is_ours());
    let spread = spread.map(|side| (side, case.spread(), format!("{}, all nodes", side.title())));
    let bars: Vec<Bar> = one
        .chain(spread)
        .filter_map(|(side, case, name)| {
            let value = figures.row(side, case)?.median(per_second);
            let ratio = figures.ratio((side, case), (Side::Redis, case.to_one()), per_second);
            let text = match ratio.filter(|_| side != Side::Redis) {
                Some(ratio) => format!("{} ({})", count(value), beside_redis(ratio.median)),
                None => count(value),
            };
            Some(Bar { name, value, text, look: side.look() })
        })
        .collect();
    let title = "Leases acquired and released per second, 512 in flight";
    let label = "pairs per second (each step is ten times as much)";
    if let Some((words, svg)) = drawn(title, label, bars) {
        page.set("headline", format!("![{words}](benchmarks/pairs.svg)"));
        page.keep("benchmarks/pairs.svg", svg);
    }
}

/// Bars, the longest first, and their alternative text.
fn drawn(title: &str, label: &'static str, mut each: Vec<Bar>) -> Option<(String, String)> {
    each.sort_by(|one, other| other.value.total_cmp(&one.value));
    let words = each.iter().map(|bar| format!("{} {}", bar.name, bar.text));
    let words = format!("{title}: {}", words.collect::<Vec<_>>().join("; "));
    let axis = Axis::decades(label, each.iter().map(|bar| bar.value));
    (!each.is_empty()).then(|| (words, bars(title, &axis, &each)))
}

fn handovers(page: &mut Page, figures: &Figures) {
    let case = |clients| Case::new(What::Handovers, clients);
    let cases =
        [("16 clients", case(16)), ("16, spread", case(16).spread()), ("128 clients", case(128))];
    let head = |case: &str| {
        let first = format!("{case}: hand-overs/s");
        [&first, "generator", "shares", "wait: p50", "p99", "longest"].map(str::to_owned).into()
    };
    for (name, cases) in [("handovers", &cases[..2]), ("handovers_many", &cases[2..])] {
        table(page, figures, name, cases, head, |side, case| {
            let row = figures.row(side, case);
            let rate = row.and_then(|row| row.spread(per_second));
            let rate = rate.map(|rate| with_range(rate, count)).unwrap_or_default();
            let shares = row.and_then(Row::unevenness).map(unevenness).unwrap_or_default();
            let waits = row.and_then(Row::waits_us).map(|waits| waits.map(micros));
            let cells = vec![rate, generator(figures, side, case), shares];
            cells.into_iter().chain(waits.unwrap_or_default()).collect()
        });
    }
    let bars = figures.sides().into_iter().filter_map(|side| {
        let row = figures.row(side, case(16))?;
        let (value, shares) = (row.median(per_second), row.unevenness()?);
        let shares = if shares.is_finite() { three_digits(shares) } else { "none".to_owned() };
        let text = format!("{}, shares {shares}", count(value));
        Some(Bar { name: side.title().to_owned(), value, text, look: side.look() })
    });
    let title = "Hand-overs per second, 16 clients on one name";
    if let Some((_, svg)) = drawn(title, "hand-overs per second", bars.collect()) {
        page.set("handovers_plot", "");
        page.keep("benchmarks/handovers.svg", svg);
    }
}

fn latency(page: &mut Page, figures: &Figures, cases: &[(&str, Case)]) {
    let head = |case: &str| ["p50", "p99", "p99.9"].map(|at| format!("{case}: {at}")).into();
    table(page, figures, "latency", cases, head, |side, case| {
        let row = figures.row(side, case);
        let at = |quantile| row.and_then(|row| percentile(figures, row, quantile));
        [0.5, 0.99, 0.999].map(|quantile| at(quantile).map(micros).unwrap_or_default()).into()
    });
    let series = |case: Case| {
        lines(|side| {
            let row = figures.row(side, case).filter(|_| !side.is_variant());
            let point = |row, quantile: f64| {
                Some((1.0 / (1.0 - quantile), percentile(figures, row, quantile)?))
            };
            let rows = row.iter().flat_map(|row| QUANTILES.map(|quantile| point(row, quantile)));
            rows.flatten().collect()
        })
    };
    let (one, many) = (series(cases[0].1), series(cases[1].1));
    if one.is_empty() || many.is_empty() {
        return;
    }
    let y = Axis::decades("microseconds", [heights(&one), heights(&many)].concat());
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        x: Axis::nines("percentile"),
        y: y.clone(),
        series,
    };
    let svg = panels(&[chart("1 in flight", one), chart("64 in flight", many)]);
    page.set("latency_plot", "");
    page.keep("benchmarks/latency.svg", svg);
}

fn curve(page: &mut Page, figures: &Figures) {
    let series = lines(|side| {
        let rows = figures.rows.iter().filter(|row| row.side == side && !side.is_variant());
        let rows = rows.filter(|row| row.case.what == What::Pairs && !row.case.spread);
        let points = rows.map(|row| (f64::from(row.case.in_flight), row.median(per_second)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        if points.len() > 1 { points } else { Vec::new() }
    });
    if series.is_empty() {
        return;
    }
    let ticks = (0..=10).step_by(2).map(|n| f64::from(1 << n));
    let chart = Chart {
        title: "Pairs per second by how many are in flight".to_owned(),
        x: Axis::log("in flight", ticks.collect::<Vec<_>>()),
        y: Axis::decades("pairs per second", heights(&series)),
        series,
    };
    page.set("curve", "");
    page.keep("benchmarks/curve.svg", chart.svg());
}

fn percentile(figures: &Figures, row: &Row, quantile: f64) -> Option<f64> {
    let at = QUANTILES.iter().position(|known| *known == quantile)?;
    let seconds = figures.method.turn_ms as f64 / 1e3;
    let beyond = row.median(per_second) * seconds * (1.0 - quantile);
    (beyond >= BEYOND_MIN).then(|| row.median(|turn| turn.latency_us[at]))
}
