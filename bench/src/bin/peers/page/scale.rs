//! The page's sections about many leases and about faults.

use std::collections::BTreeSet;
use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, heights};

use super::lines;
use super::numbers::{count, micros, percent, three_digits, with_range};
use crate::figures::Spread;
use crate::scale::{
    AT_ONCE, After, Beside, ClientRow, Clients, FAILOVER_MAX_LEASE, FAILOVER_TTL, Latency,
    MemoryRow, Phase, START_MAX_LEASE, ScaleFigures,
};
use crate::side::Side;

pub(crate) fn fill(page: &mut Page, scale: &ScaleFigures) {
    memory(page, scale);
    growth(page, scale);
    renewed(page, scale);
    stalls(page, scale);
    failover(page, scale);
    start(page, scale);
    clients(page, scale);
    idle(page, scale);
    neighbour(page, scale);
}

/// The most bytes per lease in any node.
pub(crate) fn bytes_max(scale: &ScaleFigures) -> Option<f64> {
    let ours = scale.memory.iter().filter(|row| row.side == Side::Ours);
    ours.flat_map(|row| row.bytes.iter().copied()).max_by(f64::total_cmp)
}

/// The cost of a pair with the most leases held, as a factor of that with the fewest.
pub(crate) fn cost_growth(scale: &ScaleFigures, side: Side) -> Option<f64> {
    let rows = || scale.growth.iter().filter(|row| row.side == side);
    let (few, many) = (rows().min_by_key(|row| row.held)?, rows().max_by_key(|row| row.held)?);
    Some(beside(&many.cpu_us, &few.cpu_us)?.median)
}

/// The longest gap, of clients that lose their node or of all other clients.
pub(crate) fn gap_max_ms(scale: &ScaleFigures, side: Side, lose_their_node: bool) -> Option<f64> {
    let rows = scale.failover.iter().filter(|row| row.side == side);
    let rows = rows.filter(|row| (row.clients == Clients::OfVictim) == lose_their_node);
    rows.flat_map(|row| row.gaps_ms.iter().copied()).max_by(f64::total_cmp)
}

/// How far the neighbour of the default cell comes at any fixed rate, beside that of the blocking
/// one.
pub(crate) fn worst_for_neighbour(scale: &ScaleFigures) -> Option<f64> {
    let rows = scale.neighbour.iter().filter(|row| row.rate.is_some());
    let ratios = rows.filter_map(|row| beside(&row.ours.neighbour, &row.blocking.neighbour));
    ratios.map(|ratio| ratio.median).min_by(f64::total_cmp)
}

/// The busiest idle member.
pub(crate) fn idle_max_percent(scale: &ScaleFigures, side: Side) -> Option<f64> {
    let rows = scale.idle.iter().filter(|row| row.side == side);
    rows.flat_map(|row| row.percent.iter().copied()).max_by(f64::total_cmp)
}

fn memory(page: &mut Page, scale: &ScaleFigures) {
    let most = |row: &MemoryRow| row.bytes.iter().copied().max_by(f64::total_cmp);
    let rows = scale.memory.iter().filter_map(|row| {
        let held = count(f64::from(row.leases));
        let bytes = match &row.problem {
            // An error may have characters that would end the cell.
            Some(problem) => format!("not measured: {}", problem.replace(['|', '\n'], " ")),
            None => three_digits(most(row)?),
        };
        Some(vec![row.side.title().to_owned(), held, bytes])
    });
    if scale.memory.is_empty() {
        return;
    }
    page.table("memory", &["", "leases", "bytes per lease and server"], rows);
    let series = lines(|side| {
        let rows = scale.memory.iter().filter(|row| row.side == side);
        rows.filter_map(|row| Some((f64::from(row.leases), most(row)?))).collect()
    });
    let chart = Chart {
        title: "Memory per held lease and server".to_owned(),
        x: Axis::log("leases held", [1e5, 1e6, 1e7]),
        y: Axis::decades("bytes", heights(&series)),
        series,
    };
    page.keep("benchmarks/memory.svg", chart.svg());
}

fn growth(page: &mut Page, scale: &ScaleFigures) {
    if scale.growth.is_empty() {
        return;
    }
    let of_side = |side| scale.growth.iter().filter(move |row| row.side == side);
    let held: BTreeSet<u32> = scale.growth.iter().map(|row| row.held).collect();
    let mut head = vec![String::new()];
    head.extend(held.iter().map(|held| format!("{} held", count(f64::from(*held)))));
    let sides = Side::all().filter(|side| of_side(*side).next().is_some());
    let rows = sides.map(|side| {
        let cell = |held: &u32| {
            let row = of_side(side).find(|row| row.held == *held);
            row.map(|row| spread(&row.cpu_us, micros)).unwrap_or_default()
        };
        std::iter::once(side.title().to_owned()).chain(held.iter().map(cell)).collect()
    });
    page.table("growth", &head, rows);
    let series = lines(|side| {
        let points = of_side(side).map(|row| Some((f64::from(row.held), median(&row.cpu_us)?)));
        points.flatten().collect()
    });
    let chart = Chart {
        title: "Processor time per pair while leases are held".to_owned(),
        y: Axis::from_zero("microseconds", heights(&series)),
        x: Axis::decades("leases held", held.iter().map(|held| f64::from(*held))),
        series,
    };
    page.keep("benchmarks/growth.svg", chart.svg());
}

fn renewed(page: &mut Page, scale: &ScaleFigures) {
    let Some(first) = scale.renewed.first() else { return };
    page.set("renewed_leases", count(f64::from(first.leases)));
    page.set("renewed_ttl", three_digits(first.ttl_ms as f64 / 1e3));
    page.set("renewed_pairs", count(first.pairs_due_per_second));
    page.set("renewed_failures", scale.renewed.iter().map(|row| row.failures).sum::<u64>());
    let cells = |latency: &Latency| {
        [latency.p50_us, latency.p99_us, latency.p99_9_us, latency.max_us].map(micros)
    };
    let rows = scale.renewed.iter().flat_map(|row| {
        let title = row.side.title();
        let [alone, beside] = row.load_cpu_us.map(|cpu| cpu.map(micros)).unwrap_or_default();
        let none = [String::new(), count(row.pairs_alone_per_second), alone];
        let rates = [count(row.renewals_per_second), count(row.pairs_per_second), beside];
        [(format!("{title}, alone"), none, &row.alone), (title.to_owned(), rates, &row.beside)].map(
            |(title, rates, latency)| {
                std::iter::once(title).chain(rates).chain(cells(latency)).collect()
            },
        )
    });
    let head = ["", "renewals/s", "pairs/s", "generator", "p50", "p99", "p99.9", "longest"];
    page.table("renewed", &head, rows);
}

fn stalls(page: &mut Page, scale: &ScaleFigures) {
    let Some(most) = scale.stalls.iter().map(|row| row.leases).max() else { return };
    page.set("stalls_leases", count(f64::from(most)));
    let rows = scale.stalls.iter().map(|row| {
        let turn = row.longest_turn_ms.iter().copied().max_by(f64::total_cmp);
        vec![
            format!("{}, {} leases", phase(row.phase), count(f64::from(row.leases))),
            format!("{} s", three_digits(row.seconds)),
            turn.map(|turn| micros(turn * 1e3)).unwrap_or_default(),
            micros(row.probe.p50_us),
            micros(row.probe.p99_9_us),
            micros(row.probe.max_us),
            row.failures.to_string(),
        ]
    });
    let head =
        ["", "took", "longest turn so far", "probe: p50", "p99.9", "longest", "failed probes"];
    page.table("stalls", &head, rows);
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Few => "a load over few",
        Phase::Taking => "taking",
        Phase::Renewing => "renewing",
        Phase::GivingBack => "giving back",
        Phase::TakingAgain => "taking again",
        Phase::Expiring => "expiring",
    }
}

fn failover(page: &mut Page, scale: &ScaleFigures) {
    let rows = scale.failover.iter().map(|row| {
        let clients = match row.clients {
            Clients::All => "clients of all members",
            Clients::OfSurvivor => "clients of a member that lives",
            Clients::OfVictim => "clients of the one that dies",
        };
        let failures: Vec<f64> = row.failures.iter().map(|count| *count as f64).collect();
        vec![
            format!("{}, {clients}", row.side.title()),
            spread(&row.gaps_ms, millis),
            spread(&row.quiet_ms, millis),
            spread(&failures, |count| format!("{count:.0}")),
        ]
    });
    let head = ["", "longest gap", "without a death", "operations that failed"];
    page.table("failover", &head, rows);
    page.set("failover_max_lease", seconds(FAILOVER_MAX_LEASE));
    page.set("failover_ttl_ms", FAILOVER_TTL.as_millis());
}

fn start(page: &mut Page, scale: &ScaleFigures) {
    let rows = scale.start.iter().map(|row| {
        let after = match row.after {
            After::Nothing => "a new cell",
            After::Kill => "a member after `kill -9`",
            After::KillAll => "all members after `kill -9`",
            After::Stop => "a member after a clean stop",
        };
        let held = match row.held {
            0 => String::new(),
            held => format!(", {} leases held", count(f64::from(held))),
        };
        let what = format!("{}, {after}{held}", row.side.title());
        vec![what, spread(&row.serves_ms, millis), spread(&row.votes_ms, millis)]
    });
    page.table("start", &["", "serves after", "votes after"], rows);
    page.set("start_max_lease", seconds(START_MAX_LEASE));
}

fn clients(page: &mut Page, scale: &ScaleFigures) {
    let rows = scale.clients.iter().map(|row| {
        let on_redis = |other: &&ClientRow| {
            other.library == row.library && other.side == Side::Redis && row.side != Side::Redis
        };
        let on_redis = scale.clients.iter().find(on_redis);
        let mut cells = vec![format!("{}, on {}", row.version, row.side.title())];
        for (at, load) in row.loads.iter().enumerate() {
            let ratio =
                on_redis.and_then(|other| beside(&load.per_second, &other.loads[at].per_second));
            cells.extend([
                spread(&load.per_second, count),
                ratio.map(|ratio| with_range(ratio, three_digits)).unwrap_or_default(),
                median(&load.p50_us).map(micros).unwrap_or_default(),
                median(&load.cpu_us).map(micros).unwrap_or_default(),
            ]);
        }
        cells
    });
    let mut head = vec![String::new()];
    for clients in AT_ONCE {
        head.push(format!("{clients} at a time: pairs/s"));
        head.extend(["beside Redis", "p50", "client"].map(str::to_owned));
    }
    page.table("clients", &head, rows);
}

fn idle(page: &mut Page, scale: &ScaleFigures) {
    let rows = scale.idle.iter().filter_map(|row| {
        let most = row.percent.iter().copied().max_by(f64::total_cmp)?;
        Some(vec![row.side.title().to_owned(), percent(most)])
    });
    page.table("idle", &["", "of one core, each server"], rows);
}

fn neighbour(page: &mut Page, scale: &ScaleFigures) {
    let rows = scale.neighbour.iter().map(|row| {
        let rate = row.rate.map(|rate| format!(", {} due per second", count(rate)));
        let factor = |of: fn(&Beside) -> &Vec<f64>| {
            let ratio = beside(of(&row.ours), of(&row.blocking));
            ratio.map(|ratio| with_range(ratio, three_digits)).unwrap_or_default()
        };
        vec![
            format!("{}{}", row.case, rate.unwrap_or_default()),
            spread(&row.blocking.per_second, count),
            spread(&row.ours.per_second, count),
            factor(|cell| &cell.per_second),
            median(&row.ours.load_cpu_us).map(micros).unwrap_or_default(),
            spread(&row.blocking.neighbour, three_digits),
            spread(&row.ours.neighbour, three_digits),
            factor(|cell| &cell.neighbour),
        ]
    });
    let head = [
        "",
        "blocking, per second",
        "defaults, per second",
        "factor",
        "generator",
        "loop beside blocking",
        "loop beside defaults",
        "factor",
    ];
    page.table("neighbour", &head, rows);
}

/// The ratios of each round.
fn beside(one: &[f64], other: &[f64]) -> Option<Spread> {
    Spread::of(one.iter().zip(other).map(|(one, other)| one / other).collect())
}

fn spread(values: &[f64], shown: fn(f64) -> String) -> String {
    Spread::of(values.to_vec()).map(|spread| with_range(spread, shown)).unwrap_or_default()
}

fn millis(value: f64) -> String {
    micros(value * 1e3)
}

fn seconds(span: Duration) -> String {
    format!("{}s", span.as_secs())
}

fn median(values: &[f64]) -> Option<f64> {
    Some(Spread::of(values.to_vec())?.median)
}
