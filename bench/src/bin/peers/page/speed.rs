//! The sections about speed: tables and plots of everything that was measured round by round.

use anyhow::Result;
use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Bar, Bars, Chart, Series, panels};

use super::numbers::{beside_redis, count, micros, three_digits, unevenness, with_range};
use crate::case::{CONNECTIONS, Case, HOT_NAMES, LEASES, SPREAD_CONNECTIONS, What};
use crate::figures::{Figures, QUANTILES, Row, Turn};
use crate::side::Side;

/// Fewer operations beyond a percentile would make it the luck of one of them.
const BEYOND_MIN: f64 = 5.0;

pub(crate) fn per_second(turn: &Turn) -> f64 {
    turn.per_second
}

/// The picture that everything begins with.
pub(crate) fn headline(page: &mut Page, figures: &Figures) -> Result<()> {
    let case = Case::new(What::Pairs, 512);
    let one = figures.sides().into_iter().map(|side| (side, case, side.title().to_owned()));
    let spread = figures.sides().into_iter().filter(|side| side.is_ours());
    let spread = spread.map(|side| (side, case.spread(), format!("{}, all nodes", side.title())));
    let mut bars: Vec<Bar> = one
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
    if bars.is_empty() {
        return Ok(());
    }
    bars.sort_by(|one, other| other.value.total_cmp(&one.value));
    let title = "Leases taken and given back per second, 512 in flight".to_owned();
    let words = bars.iter().map(|bar| format!("{} {}", bar.name, bar.text));
    let words = format!("{title}: {}", words.collect::<Vec<_>>().join("; "));
    let label = "pairs per second (each step is ten times as much)";
    let x = Axis::decades(label, bars.iter().map(|bar| bar.value));
    page.picture("benchmarks/pairs.svg", &words, Bars { title, x, bars }.svg()?);
    Ok(())
}

pub(crate) fn pairs(page: &mut Page, figures: &Figures) -> Result<()> {
    if figures.rows.is_empty() {
        return Ok(());
    }
    page.heading("Taking and giving back");
    page.say(&format!(
        "Acquire and release of a name that nobody else wants, a new one every time. Clients share \
         {CONNECTIONS} connections; *spread* is {SPREAD_CONNECTIONS} connections over all members, \
         where clients have the choice. Redlock's clients speak to all three servers anyway, over \
         {CONNECTIONS} connections to each. With one in flight, it can be faster than a single \
         Redis: much of that time goes into waking cores that sleep, and three servers at work keep \
         them awake."
    ));
    let case = |in_flight| Case::new(What::Pairs, in_flight);
    rates(page, figures, &[("1 in flight", case(1)), ("64", case(64)), ("512", case(512))]);
    rates(page, figures, &[("64, spread", case(64).spread()), ("512, spread", case(512).spread())]);
    curve(page, figures)?;
    let own = |in_flight| Case::new(What::OwnConnections, in_flight);
    part(
        page,
        figures,
        "A connection for each client",
        "As programs do that have one lease to take: every operation in flight has a connection of \
         its own, so that nothing can be sent together.",
        &[("64 clients", own(64)), ("512 clients", own(512))],
    );
    part(
        page,
        figures,
        "With cores that never sleep",
        "Much of a small load is the waking of sleeping cores. Here a loop in the scheduler's idle \
         class runs on each, for everybody alike: nobody has to wait for it, but no core goes to \
         sleep.",
        &[("64 in flight", Case::new(What::Awake, 64))],
    );
    part(
        page,
        figures,
        "A tenth contended",
        &format!(
            "One pair in ten wants one of the same {HOT_NAMES} names. Who finds it held is told so \
             and goes on; only pairs that succeeded count."
        ),
        &[("64 in flight", Case::new(What::Mixed, 64))],
    );
    Ok(())
}

/// A part of a section, if it was measured.
fn part(page: &mut Page, figures: &Figures, title: &str, words: &str, cases: &[(&str, Case)]) {
    if figures.has(cases) {
        page.subheading(title);
        page.say(words);
        rates(page, figures, cases);
    }
}

pub(crate) fn renewals(page: &mut Page, figures: &Figures) {
    let case = |in_flight| Case::new(What::Renewals, in_flight);
    let cases = [("64 in flight", case(64)), ("512 in flight", case(512))];
    if !figures.has(&cases) {
        return;
    }
    page.heading("Renewals");
    page.say(&format!(
        "{LEASES} leases are held and renewed in turn. A renewal of ours or of Redis extends one \
         lease. One of etcd is a keep-alive of one lease, which its leader answers from memory; one \
         of ZooKeeper is a ping, which renews a whole session with all that it holds. That \
         is another kind of work, so their figures have no factor."
    ));
    rates(page, figures, &cases);
}

pub(crate) fn handovers(page: &mut Page, figures: &Figures) -> Result<()> {
    let case = |clients| Case::new(What::Handovers, clients);
    let cases = [
        ("16 clients", case(16)),
        ("16, spread", case(16).spread()),
        ("128 clients", case(128)),
        ("128, spread", case(128).spread()),
    ];
    if !figures.has(&cases) {
        return Ok(());
    }
    page.heading("One name from hand to hand");
    page.say(
        "Every client wants the same name, gives it back at once and wants it again, each over a \
         connection of its own. A hand-over is a grant to another client than the one before. Ours, \
         etcd and ZooKeeper queue those who wait and wake the next; Redis and Redlock have no \
         queue, so their clients ask again after 0.5 to 1.5 ms, drawn anew each time. *Shares* is \
         how many times as often the luckiest client had the name as the unluckiest, within a turn.",
    );
    let mut head = vec![String::new()];
    for (name, _) in cases {
        head.extend([format!("{name}: hand-overs/s"), "shares".to_owned()]);
    }
    let rows = figures.sides().into_iter().filter_map(|side| {
        let cells = cases.iter().flat_map(|(_, case)| {
            let row = figures.row(side, *case);
            let rate = row.and_then(|row| row.spread(per_second));
            let shares = row.and_then(Row::unevenness);
            [
                rate.map(|rate| with_range(rate, count)).unwrap_or_default(),
                shares.map(unevenness).unwrap_or_default(),
            ]
        });
        some(side.title(), cells)
    });
    page.table(&texts(&head), &rows.collect::<Vec<_>>());
    let mut bars: Vec<Bar> = figures
        .sides()
        .into_iter()
        .filter_map(|side| {
            let row = figures.row(side, case(16))?;
            let (value, shares) = (row.median(per_second), row.unevenness()?);
            let shares = if shares.is_finite() { three_digits(shares) } else { "none".to_owned() };
            let text = format!("{}, shares {shares}", count(value));
            Some(Bar { name: side.title().to_owned(), value, text, look: side.look() })
        })
        .collect();
    if bars.is_empty() {
        return Ok(());
    }
    bars.sort_by(|one, other| other.value.total_cmp(&one.value));
    let title = "Hand-overs per second, 16 clients on one name".to_owned();
    let words = title.clone();
    let x = Axis::decades("hand-overs per second", bars.iter().map(|bar| bar.value));
    page.picture("benchmarks/handovers.svg", &words, Bars { title, x, bars }.svg()?);
    Ok(())
}

pub(crate) fn latency(page: &mut Page, figures: &Figures) -> Result<()> {
    let case = |in_flight| Case::new(What::Pairs, in_flight);
    let cases = [("1 in flight", case(1)), ("64", case(64)), ("512", case(512))];
    if !figures.has(&cases) {
        return Ok(());
    }
    page.heading("Latency");
    page.say(
        "From asking for a lease to having given it back, both answers included, as the client's \
         clock saw it. Percentiles are medians over the rounds; one that too few operations lie \
         beyond is left out.",
    );
    let mut head = vec![String::new()];
    for (name, _) in cases {
        head.extend(["p50", "p99", "p99.9"].map(|percentile| format!("{name}: {percentile}")));
    }
    let rows = figures.sides().into_iter().filter_map(|side| {
        let cells = cases.iter().flat_map(|(_, case)| {
            let row = figures.row(side, *case);
            let at = |quantile| row.and_then(|row| percentile(figures, row, quantile));
            [0.5, 0.99, 0.999].map(|quantile| at(quantile).map(micros).unwrap_or_default())
        });
        some(side.title(), cells)
    });
    page.table(&texts(&head), &rows.collect::<Vec<_>>());
    let series = |case: Case| -> Vec<Series> {
        let of = |side: Side| {
            let row = figures.row(side, case).filter(|_| !side.is_variant())?;
            let points = QUANTILES.iter().filter_map(|quantile| {
                Some((1.0 / (1.0 - quantile), percentile(figures, row, *quantile)?))
            });
            let name = side.title().to_owned();
            Some(Series { name, points: points.collect(), look: side.look() })
        };
        figures.sides().into_iter().filter_map(of).collect()
    };
    let (one, many) = (series(case(1)), series(case(64)));
    if one.is_empty() || many.is_empty() {
        return Ok(());
    }
    let values = one.iter().chain(&many).flat_map(|series| series.points.iter().map(|(_, y)| *y));
    let y = Axis::decades("microseconds", values.collect::<Vec<_>>());
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        x: Axis::nines("percentile"),
        y: y.clone(),
        series,
    };
    let svg = panels(&[chart("1 in flight", one), chart("64 in flight", many)])?;
    page.picture("benchmarks/latency.svg", "Latency of a pair by percentile", svg);
    Ok(())
}

pub(crate) fn cost(page: &mut Page, figures: &Figures) {
    let cases = [
        ("pair, 1 in flight", Case::new(What::Pairs, 1)),
        ("pair, 64", Case::new(What::Pairs, 64)),
        ("pair, 512", Case::new(What::Pairs, 512)),
        ("pair, a connection each, 64", Case::new(What::OwnConnections, 64)),
    ];
    if !figures.has(&cases) {
        return;
    }
    page.heading("What it costs");
    page.say(
        "Processor time per operation, user and kernel: of all of a service's processes together, \
         and, behind the plus, of the load generator. etcd's clients speak gRPC, which takes more of \
         their own core than the others' protocols do.",
    );
    let mut head = vec![""];
    head.extend(cases.iter().map(|(name, _)| *name));
    let rows = figures.sides().into_iter().filter_map(|side| {
        let cells = cases.iter().map(|(_, case)| {
            let cost = |row: &Row| {
                let load = row.median(|turn| turn.load_cpu_us);
                format!("{} + {}", micros(row.median(|turn| turn.cpu_us)), micros(load))
            };
            figures.row(side, *case).map(cost).unwrap_or_default()
        });
        some(side.title(), cells)
    });
    page.table(&head, &rows.collect::<Vec<_>>());
}

/// Rates with their range, and what they are beside one Redis under the same load.
fn rates(page: &mut Page, figures: &Figures, cases: &[(&str, Case)]) {
    if !figures.has(cases) {
        return;
    }
    let mut head = vec![String::new()];
    for (name, case) in cases {
        let unit = if case.what == What::Renewals { "renewals/s" } else { "pairs/s" };
        head.extend([format!("{name}: {unit}"), "beside Redis".to_owned()]);
    }
    let rows = figures.sides().into_iter().filter_map(|side| {
        let cells = cases.iter().flat_map(|(_, case)| {
            let rate = figures.row(side, *case).and_then(|row| row.spread(per_second));
            let redis = (Side::Redis, case.to_one());
            let ratio = figures.ratio((side, *case), redis, per_second);
            let ratio = ratio.filter(|_| case.what != What::Renewals || side.renews_one());
            [
                rate.map(|rate| with_range(rate, count)).unwrap_or_default(),
                match ratio {
                    Some(_) if side == Side::Redis => "1".to_owned(),
                    Some(ratio) => with_range(ratio, three_digits),
                    None => String::new(),
                },
            ]
        });
        some(side.title(), cells)
    });
    page.table(&texts(&head), &rows.collect::<Vec<_>>());
}

fn curve(page: &mut Page, figures: &Figures) -> Result<()> {
    let of = |side: Side| {
        let mut points: Vec<(f64, f64)> = figures
            .rows
            .iter()
            .filter(|row| row.side == side && row.case.what == What::Pairs && !row.case.spread)
            .map(|row| (f64::from(row.case.in_flight), row.median(per_second)))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        (points.len() > 1).then(|| Series {
            name: side.title().to_owned(),
            points,
            look: side.look(),
        })
    };
    let sides = figures.sides().into_iter().filter(|side| !side.is_variant());
    let series: Vec<Series> = sides.filter_map(of).collect();
    if series.is_empty() {
        return Ok(());
    }
    let values: Vec<f64> =
        series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y)).collect();
    let chart = Chart {
        title: "Pairs per second by how many are in flight".to_owned(),
        x: Axis::log(
            "in flight",
            (0..=10).step_by(2).map(|n| f64::from(1 << n)).collect::<Vec<_>>(),
        ),
        y: Axis::decades("pairs per second", values),
        series,
    };
    page.picture(
        "benchmarks/curve.svg",
        "Pairs per second by how many are in flight",
        chart.svg()?,
    );
    Ok(())
}

fn percentile(figures: &Figures, row: &Row, quantile: f64) -> Option<f64> {
    let at = QUANTILES.iter().position(|known| *known == quantile)?;
    let seconds = figures.method.turn_ms as f64 / 1e3;
    let beyond = row.median(per_second) * seconds * (1.0 - quantile);
    (beyond >= BEYOND_MIN).then(|| row.median(|turn| turn.latency_us[at]))
}

/// A row of a table, unless it has nothing to say.
fn some(title: &str, cells: impl Iterator<Item = String>) -> Option<Vec<String>> {
    let cells: Vec<String> = cells.collect();
    let has_some = cells.iter().any(|cell| !cell.is_empty());
    has_some.then(|| std::iter::once(title.to_owned()).chain(cells).collect())
}

fn texts(head: &[String]) -> Vec<&str> {
    head.iter().map(String::as_str).collect()
}
