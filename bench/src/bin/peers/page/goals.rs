//! The goals, and whether each one is met. The template has them as placeholders: `ours pairs-512 /
//! redis >= 1.5` is a rate as a factor of a peer's, and [`value`] has the other figures.

use anyhow::{Context as _, Result};
use paxoslease_bench::page::Page;

use super::numbers::{count, micros, percent, three_digits};
use super::scale;
use super::speed::per_second;
use crate::case::{self, Case};
use crate::figures::{Figures, Row, Turn};
use crate::side::Side;

pub(crate) fn fill(page: &mut Page, figures: &Figures) -> Result<()> {
    let (mut all, mut met) = (0, 0);
    for formula in page.placeholders().into_iter().filter(|name| name.contains(' ')) {
        let words: Vec<&str> = formula.split(' ').collect();
        let [ref figure @ .., relation, bound] = words[..] else { continue };
        let shown = value(figures, figure).with_context(|| formula.to_owned())?;
        let text = shown.map(|(value, shown)| {
            let bound: f64 = bound.parse()?;
            let is_met = if relation == ">=" { value >= bound } else { value <= bound };
            // Goals of other cells, and beside variants of a service, are only shown.
            let is_variant = figure.last().is_some_and(|peer| peer.ends_with("in-memory"));
            let counts = figure.first() == Some(&"ours") && !is_variant;
            all += usize::from(counts);
            met += usize::from(counts && is_met);
            let verdict = if is_met { "met" } else { "**missed**" };
            anyhow::Ok(format!("{}, {verdict}", shown(value)))
        });
        page.set(formula, text.transpose()?.unwrap_or_default());
    }
    page.set("all", all);
    page.set("met", met);
    Ok(())
}

/// A figure, and how people read it.
type Shown = (f64, fn(f64) -> String);

/// `None` if it was not measured.
fn value(figures: &Figures, words: &[&str]) -> Result<Option<Shown>> {
    let millis = |value: f64| micros(value * 1e3);
    let ratio = three_digits as fn(f64) -> String;
    let scale = figures.scale.as_ref();
    let (value, shown) = match *words {
        [side, "rate", load] => {
            let row = figures.row(named(side)?, case(load)?);
            (row.map(|row| row.median(per_second)), count as _)
        }
        [side, "longest-wait", load] => {
            let waits = figures.row(named(side)?, case(load)?).and_then(Row::waits_us);
            (waits.map(|[median, _, longest]| longest / median), ratio)
        }
        [side, "median", load, "/", peer] => {
            let (case, latency) = (case(load)?, |turn: &Turn| turn.latency_us[0]);
            let ratios = figures.ratio((named(side)?, case), (named(peer)?, case), latency);
            (ratios.map(|ratios| ratios.median), ratio)
        }
        [side, load, "/", peer] => {
            (factor(figures, named(side)?, case(load)?, named(peer)?), ratio)
        }
        ["ours", "bytes"] => (scale.and_then(scale::bytes_max), ratio),
        ["ours", "neighbour"] => (scale.and_then(scale::worst_for_neighbour), ratio),
        [side, "idle"] => {
            let side = named(side)?;
            (scale.and_then(|all| scale::idle_max_percent(all, side)), percent as _)
        }
        [side, "growth"] => {
            let side = named(side)?;
            (scale.and_then(|all| scale::cost_growth(all, side)), ratio)
        }
        [side, gap @ ("gap" | "own-gap")] => {
            let side = named(side)?;
            let gap_max = |all| scale::gap_max_ms(all, side, gap == "own-gap");
            (scale.and_then(gap_max), millis as _)
        }
        _ => anyhow::bail!("not a figure"),
    };
    Ok(value.map(|value| (value, shown)))
}

fn case(name: &str) -> Result<Case> {
    case::all(false).into_iter().find(|case| case.name() == name).context("not a load")
}

/// A side, as the figures spell it.
fn named(word: &str) -> Result<Side> {
    Ok(serde_json::from_value(word.into())?)
}

/// The rate as a factor of the peer's faster one: to one member, or to all.
fn factor(figures: &Figures, side: Side, case: Case, peer: Side) -> Option<f64> {
    let speed = |case: &Case| figures.row(peer, *case).map(|row| row.median(per_second));
    let cases = [case.to_one(), case.to_one().spread()];
    let cases = cases.into_iter().filter(|case| speed(case).is_some());
    let best = cases
        .max_by(|one, other| speed(one).unwrap_or(0.0).total_cmp(&speed(other).unwrap_or(0.0)))?;
    Some(figures.ratio((side, case), (peer, best), per_second)?.median)
}
