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
    let mut page = Page::new(NAME, "cargo xtask soak", "# Soak\n");
    if !complaints.is_empty() {
        page.say("NOT FLAT:");
        page.list(complaints);
    } else if minutes.len() < MINUTES_MIN {
        page.say(&format!(
            "Nothing failed. Whether anything grows can be said after {MINUTES_MIN} minutes."
        ));
    } else {
        page.say("Everything stayed flat.");
    }
    page.say(&format!(
        "Version {version}, three nodes on loopback with TLS between them, {} minutes: {} pairs \
         per second, a tenth of them on few names, and {} leases renewed {} times per second; \
         scrapes, lists, leases and watches over HTTP. Connections and leases are made anew every \
         minute. Latency counts from when an operation was due.",
        minutes.len(),
        steady.pairs_rate,
        steady.leases,
        steady.renewals_rate,
    ));
    let operations: u64 =
        minutes.iter().map(|minute| minute.pairs.operations + minute.renewals.operations).sum();
    let failures: u64 = minutes.iter().map(|minute| minute.failures).sum();
    let answered: u64 = minutes.iter().map(|minute| minute.visits.answered).sum();
    let told: u64 = minutes.iter().map(|minute| minute.visits.told).sum();
    page.say(&format!(
        "{operations} operations, {failures} failures; {answered} requests over HTTP, {told} \
         changes told to those who watch."
    ));
    let growth: Vec<String> = (0..minutes.first().map_or(0, |minute| minute.nodes.len()))
        .map(|node| format!("{:+.2}", hourly_growth_mib(minutes, node)))
        .collect();
    page.say(&format!(
        "What nodes allocated rises by {} MiB an hour after the first minute: medians of the \
         slopes between any two minutes. The rest of their memory is the program itself.",
        growth.join(", ")
    ));
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
    page.table(&head, &rows);
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
    let memory = chart("Resident memory", "MiB", minutes, &rss, Axis::from_zero)?;
    page.picture("memory.svg", "Resident memory of each node over the minutes", memory);
    let latency = chart("Latency", "microseconds", minutes, &latency, Axis::decades)?;
    page.picture("latency.svg", "Latency of pairs and renewals over the minutes", latency);
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
) -> Result<String> {
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
