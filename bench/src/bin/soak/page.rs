//! The report: a table of minutes far apart, and pictures of all of them.

use std::path::Path;

use anyhow::Result;
use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Look, Marker, Series};

use crate::minute::{Minute, Node, Steady, mib};
use crate::verdict::{MINUTES_MIN, hourly_growth_mib};

/// Within the folder.
pub(crate) const NAME: &str = "soak.md";

const ROWS_MAX: usize = 12;
const COLOURS: [(u8, u8, u8); 4] =
    [(0x1f, 0x77, 0xb4), (0xd6, 0x27, 0x28), (0x2c, 0xa0, 0x2c), (0x94, 0x67, 0xbd)];
const MARKERS: [Marker; 4] = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];

type Figure<'a> = &'a dyn Fn(&Minute) -> f64;

pub(crate) fn write(
    folder: &Path,
    version: &str,
    steady: Steady,
    minutes: &[Minute],
    complaints: &[String],
) -> Result<()> {
    let mut page = Page::new(NAME, "cargo xtask soak", include_str!("soak.md.in"));
    if !complaints.is_empty() {
        page.set("complaints", format!("- {}", complaints.join("\n- ")));
    } else if minutes.len() < MINUTES_MIN {
        let verdict = "Nothing failed. Whether anything grows can be said after";
        page.set("verdict", format!("{verdict} {MINUTES_MIN} minutes."));
    } else {
        page.set("verdict", "Everything stayed flat.");
    }
    let sum = |figure: fn(&Minute) -> u64| minutes.iter().map(figure).sum::<u64>();
    page.set("version", version);
    page.set("minutes", minutes.len());
    page.set("pairs", steady.pairs_rate);
    page.set("leases", steady.leases);
    page.set("renewals", steady.renewals_rate);
    page.set("operations", sum(|minute| minute.pairs.operations + minute.renewals.operations));
    page.set("failures", sum(|minute| minute.failures));
    page.set("answered", sum(|minute| minute.visits.answered));
    page.set("told", sum(|minute| minute.visits.told));
    let growth: Vec<String> = (0..minutes.first().map_or(0, |minute| minute.nodes.len()))
        .map(|node| format!("{:+.2}", hourly_growth_mib(minutes, node)))
        .collect();
    page.set("growth", growth.join(", "));
    let step = minutes.len().div_ceil(ROWS_MAX).max(1);
    let rows: Vec<Vec<String>> =
        (1..).zip(minutes).filter(|(number, _)| number % step == 0).map(row).collect();
    let head = [
        "minute",
        "pairs p50, us",
        "p99",
        "renewals p50, us",
        "p99",
        "MiB of each node (allocated)",
        "files",
        "cores",
    ];
    page.table("table", &head, &rows);
    let node = |place: usize| format!("node {}", place + 1);
    let rss: Vec<(String, Figure<'_>)> = vec![
        (node(0), &|minute| mib(minute.nodes[0].rss as f64)),
        (node(1), &|minute| mib(minute.nodes[1].rss as f64)),
        (node(2), &|minute| mib(minute.nodes[2].rss as f64)),
    ];
    let latency: Vec<(String, Figure<'_>)> = vec![
        ("pairs, p50".to_owned(), &|minute| minute.pairs.p50),
        ("pairs, p99".to_owned(), &|minute| minute.pairs.p99),
        ("renewals, p50".to_owned(), &|minute| minute.renewals.p50),
        ("renewals, p99".to_owned(), &|minute| minute.renewals.p99),
    ];
    let memory = chart("Resident memory", "MiB", minutes, &rss, Axis::from_zero);
    page.keep("memory.svg", memory);
    let latency = chart("Latency", "microseconds", minutes, &latency, Axis::decades);
    page.keep("latency.svg", latency);
    page.write(folder)
}

fn row((number, minute): (usize, &Minute)) -> Vec<String> {
    let each = |figure: &dyn Fn(usize) -> String| {
        (0..minute.nodes.len()).map(figure).collect::<Vec<_>>().join(" / ")
    };
    let nodes = &minute.nodes;
    vec![
        number.to_string(),
        format!("{:.0}", minute.pairs.p50),
        format!("{:.0}", minute.pairs.p99),
        format!("{:.0}", minute.renewals.p50),
        format!("{:.0}", minute.renewals.p99),
        each(&|node| {
            let Node { rss, allocated, .. } = nodes[node];
            format!("{:.1} ({:.2})", mib(rss as f64), mib(allocated as f64))
        }),
        each(&|node| nodes[node].files.to_string()),
        each(&|node| format!("{:.2}", nodes[node].cores)),
    ]
}

fn chart(
    title: &str,
    unit: &'static str,
    minutes: &[Minute],
    lines: &[(String, Figure<'_>)],
    axis: fn(&'static str, Vec<f64>) -> Axis,
) -> String {
    let values = |figure: Figure<'_>| minutes.iter().map(figure).collect::<Vec<f64>>();
    let series = lines.iter().zip(COLOURS.into_iter().zip(MARKERS));
    let series = series.map(|((name, figure), (colour, marker))| Series {
        name: name.clone(),
        points: (1..).map(f64::from).zip(values(*figure)).collect(),
        look: Look { colour, marker, dashed: false },
    });
    let all = lines.iter().flat_map(|(_, figure)| values(*figure)).collect();
    Chart {
        title: title.to_owned(),
        x: Axis::from_zero("minutes", [minutes.len() as f64]),
        y: axis(unit, all),
        series: series.collect(),
    }
    .svg()
}
