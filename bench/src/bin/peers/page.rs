//! The pages: makes the values of the templates and the pictures from the figures alone.

mod goals;
mod numbers;
mod scale;
mod speed;

use anyhow::Result;
use paxoslease_bench::page::Page;
use paxoslease_bench::plot::Series;

use crate::case::{CONNECTIONS, HANDOVER_SPANS, HOT_NAMES, LEASES, SPREAD_CONNECTIONS, TTL};
use crate::figures::Figures;
use crate::measure::SETTLE;
use crate::side::Side;

const COMMAND: &str = "cargo xtask bench peers -- --render";

/// The page for users, and the goals for maintainers.
pub(crate) fn pages(figures: &Figures) -> Result<[Page; 2]> {
    let mut page = Page::new("benchmarks.md", COMMAND, include_str!("benchmarks.md.in"));
    method(&mut page, figures);
    speed::fill(&mut page, figures);
    if let Some(measured) = &figures.scale {
        scale::fill(&mut page, measured);
    }
    let mut goals = Page::new("../bench/GOALS.md", COMMAND, include_str!("goals.md.in"));
    goals::fill(&mut goals, figures)?;
    Ok([page, goals])
}

/// A line for each side with points.
fn lines(points: impl Fn(Side) -> Vec<(f64, f64)>) -> Vec<Series> {
    let sides = Side::all().map(|side| (side, points(side)));
    let sides = sides.filter(|(_, points)| !points.is_empty());
    sides
        .map(|(side, points)| Series { name: side.title().to_owned(), points, look: side.look() })
        .collect()
}

fn method(page: &mut Page, figures: &Figures) {
    page.set("rounds", figures.method.rounds);
    page.set("warmup_ms", figures.method.warmup_ms);
    page.set("turn_ms", figures.method.turn_ms);
    page.set("handover_spans", HANDOVER_SPANS);
    page.set("settle_s", SETTLE.as_secs());
    page.set("ttl_s", TTL.as_secs());
    page.set("connections", CONNECTIONS);
    page.set("spread_connections", SPREAD_CONNECTIONS);
    page.set("hot_names", HOT_NAMES);
    page.set("leases", LEASES);
    let machine = &figures.machine;
    page.set("machine_kind", if machine.virtualised { "virtual machine" } else { "machine" });
    page.set("cores", machine.cores);
    page.set("processor", &machine.processor);
    page.set("memory_gib", machine.memory_gib);
    page.set("system", &machine.system);
    page.set("kernel", &machine.kernel);
    page.set("load_before", format!("{:.1}", machine.load_before));
    page.set("stolen", format!("{:.1}", machine.stolen_percent));
    let services = figures.services.iter().map(|service| {
        let title = service.side.title().to_owned();
        vec![title, service.version.clone(), service.settings.clone()]
    });
    page.listing("services", &["service", "version", "settings"], services);
    let failures = figures.failures();
    let failures = failures.map(|(row, n)| format!("{}, {}: {n}", row.side.title(), row.case));
    let failures: Vec<String> = failures.collect();
    for (name, list) in [("failures", &failures), ("troubles", &figures.troubles)] {
        if !list.is_empty() {
            page.set(name, list.join("; "));
        }
    }
}
