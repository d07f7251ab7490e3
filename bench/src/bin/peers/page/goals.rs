//! The goals, and whether each one is met.

use paxoslease_bench::page::Page;

use super::numbers::{count, micros, three_digits, unevenness};
use super::scale;
use super::speed::per_second;
use crate::case::{Case, What};
use crate::figures::{Figures, Row, Turn};
use crate::side::Side;

struct Cell {
    value: f64,
    is_met: bool,
    shown: fn(f64) -> String,
}

impl Cell {
    fn at_least(min: f64, value: Option<f64>, shown: fn(f64) -> String) -> Option<Self> {
        value.map(|value| Self { value, is_met: value >= min, shown })
    }

    fn at_most(max: f64, value: Option<f64>, shown: fn(f64) -> String) -> Option<Self> {
        value.map(|value| Self { value, is_met: value <= max, shown })
    }

    fn text(&self) -> String {
        let verdict = if self.is_met { "met" } else { "**missed**" };
        format!("{}, {verdict}", (self.shown)(self.value))
    }
}

/// A row of the table.
struct Goal {
    load: String,
    goal: String,
    /// Whether it counts; goals about variants of a service are only shown.
    counts: bool,
    /// The cell that blocks and the one that spins; `None` for a cell without this goal.
    cells: [Option<Cell>; 2],
}

impl Goal {
    fn new(load: &str, goal: impl Into<String>, cells: [Option<Cell>; 2]) -> Self {
        Self { load: load.to_owned(), goal: goal.into(), counts: true, cells }
    }
}

const OURS: [Side; 2] = [Side::Ours, Side::OursSpinning];

pub(crate) fn fill(page: &mut Page, figures: &Figures) {
    let mut lines = beside_others(figures);
    lines.extend(alone(figures));
    lines.extend(handovers(figures));
    lines.extend(figures.scale.iter().flat_map(at_scale));
    lines.retain(|goal| goal.cells.iter().any(Option::is_some));
    let counted = lines.iter().filter(|goal| goal.counts);
    let counted: Vec<&Cell> = counted.flat_map(|goal| &goal.cells).flatten().collect();
    page.set("all", counted.len());
    page.set("met", counted.iter().filter(|cell| cell.is_met).count());
    let rows = lines.into_iter().map(|Goal { load, goal, cells, .. }| {
        let [blocking, spinning] =
            cells.map(|cell| cell.as_ref().map(Cell::text).unwrap_or_default());
        vec![load, goal, blocking, spinning]
    });
    let head = ["load", "goal", "blocking", "spinning"];
    page.listing("goals", &head, &rows.collect::<Vec<_>>());
}

/// Rates as factors of other services. Goals about variants do not count.
fn beside_others(figures: &Figures) -> Vec<Goal> {
    let pairs = |in_flight| Case::new(What::Pairs, in_flight);
    let own = |clients| Case::new(What::OwnConnections, clients);
    let renewals = |in_flight| Case::new(What::Renewals, in_flight);
    let many = ("pairs, 512 in flight, one node", pairs(512));
    let awake = Case::new(What::Awake, 64);
    let goals: [((&str, Case), Side, f64); 13] = [
        (many, Side::Redis, 1.5),
        (("pairs, 512 in flight, spread", pairs(512).spread()), Side::Redis, 2.0),
        (many, Side::Redlock, 4.0),
        (many, Side::ZooKeeper, 20.0),
        (many, Side::ZooKeeperInMemory, 20.0),
        (many, Side::Etcd, 50.0),
        (many, Side::EtcdInMemory, 50.0),
        (("pairs, 64 in flight, one node", pairs(64)), Side::Redis, 1.3),
        (("pairs, 64 in flight, cores awake", awake), Side::Redis, 1.0),
        (("pairs, 64 clients with a connection each", own(64)), Side::Redis, 1.0),
        (("pairs, 512 clients with a connection each", own(512)), Side::Redis, 1.0),
        (("renewals, 64 in flight", renewals(64)), Side::Redis, 2.0),
        (("renewals, 512 in flight", renewals(512)), Side::Redis, 4.0),
    ];
    let line = |((what, case), peer, times): ((&str, Case), Side, f64)| {
        let cell = |side| Cell::at_least(times, factor(figures, side, case, peer), three_digits);
        let goal = format!("at least {times} x {}", plain(peer));
        Goal { counts: !peer.is_variant(), ..Goal::new(what, goal, OURS.map(cell)) }
    };
    goals.map(line).into()
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

/// The median latency of a pair, with one client.
fn alone(figures: &Figures) -> [Goal; 3] {
    let case = Case::new(What::Pairs, 1);
    let cell = |side, peer, max| {
        let ratio = figures.ratio((side, case), (peer, case), |turn: &Turn| turn.latency_us[0]);
        Cell::at_most(max, ratio.map(|ratio| ratio.median), three_digits)
    };
    let load = "1 in flight, median of a pair";
    let tenth = |peer: Side| {
        let goal = format!("at most a tenth of {}", plain(peer));
        let cells = OURS.map(|side| cell(side, peer, 0.1));
        Goal { counts: !peer.is_variant(), ..Goal::new(load, goal, cells) }
    };
    let redlock = [(Side::Ours, 1.2), (Side::OursSpinning, 0.5)];
    let redlock = redlock.map(|(side, max)| cell(side, Side::Redlock, max));
    let redlock = Goal::new(load, "at most 1.2 x Redlock; 0.5 x spinning", redlock);
    [redlock, tenth(Side::Etcd), tenth(Side::EtcdInMemory)]
}

fn handovers(figures: &Figures) -> [Goal; 3] {
    let case = Case::new(What::Handovers, 16);
    let line = |goal: &str, cells| Goal::new("hand-overs, 16 clients on one name", goal, cells);
    let rate = |(side, min)| {
        let row = figures.row(side, case);
        Cell::at_least(min, row.map(|row| row.median(per_second)), count)
    };
    let shares = |side| {
        let row = figures.row(side, case);
        Cell::at_most(1.5, row.and_then(Row::unevenness), unevenness)
    };
    let zookeeper =
        |side| Cell::at_least(20.0, factor(figures, side, case, Side::ZooKeeper), three_digits);
    let rates = [(Side::Ours, 12e3), (Side::OursSpinning, 25e3)].map(rate);
    [
        line("at least 12 k/s; 25 k/s spinning", rates),
        line("luckiest at most 1.5 x unluckiest", OURS.map(shares)),
        line("at least 20 x ZooKeeper, on disk", OURS.map(zookeeper)),
    ]
}

fn at_scale(measured: &crate::scale::ScaleFigures) -> [Goal; 6] {
    let millis = |value: f64| micros(value * 1e3);
    let gap = |lost| {
        OURS.map(|side| Cell::at_most(50.0, scale::gap_max_ms(measured, side, lost), millis))
    };
    let growth = scale::cost_growth(measured, Side::Ours);
    let worst = scale::worst_beside_neighbour(measured);
    [
        Goal::new(
            "memory per held lease and node",
            "at most 88 bytes",
            [Cell::at_most(88.0, scale::bytes_max(measured), three_digits), None],
        ),
        Goal::new(
            "CPU per pair, however many leases are held",
            "dearest at most 1.2 x cheapest",
            [Cell::at_most(1.2, growth, three_digits), None],
        ),
        Goal::new(
            "many leases taken, renewed, expired",
            "no turn of a shard over 10 ms",
            [Cell::at_most(10.0, scale::longest_turn_ms(measured), millis), None],
        ),
        Goal::new(
            "`kill -9` of a node, clients of all or of others",
            "longest gap at most 50 ms",
            gap(false),
        ),
        Goal::new("`kill -9` of a node, its own clients", "longest gap at most 50 ms", gap(true)),
        Goal::new(
            "one core taken by a neighbour",
            "at least 0.9 x blocking",
            [None, Cell::at_least(0.9, worst, three_digits)],
        ),
    ]
}

const fn plain(side: Side) -> &'static str {
    match side {
        Side::Redis | Side::RedisSaving => "one Redis",
        Side::Redlock => "Redlock",
        Side::OursDefault | Side::Ours | Side::OursSpinning => "ours",
        Side::ZooKeeper => "ZooKeeper, on disk",
        Side::ZooKeeperInMemory => "ZooKeeper, on tmpfs",
        Side::Etcd => "etcd, on disk",
        Side::EtcdInMemory => "etcd, on tmpfs",
    }
}
