//! What was to be reached, and whether it was. A goal that is missed says so.

use paxoslease_bench::page::Page;

use super::numbers::{count, micros, three_digits, unevenness};
use super::scale;
use super::speed::per_second;
use crate::case::{Case, What};
use crate::figures::{Figures, Turn};
use crate::side::Side;

/// What a figure should be.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure beside its bound, as a cell of the table.
struct Cell {
    value: f64,
    bound: Bound,
    shown: fn(f64) -> String,
}

impl Cell {
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(min) => self.value >= min,
            Bound::AtMost(max) => self.value <= max,
        }
    }

    fn text(&self) -> String {
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        format!("{}, {verdict}", (self.shown)(self.value))
    }
}

/// A line of the table: what, the goal in words, and how the cell that blocks and the one that
/// spins fare. Where a goal is about one of them, the other has no figure.
struct Line {
    what: String,
    goal: String,
    /// It only shows how a goal would fare beside a variant of the peer, and does not count.
    is_besides: bool,
    blocking: Option<Cell>,
    spinning: Option<Cell>,
}

pub(crate) fn section(page: &mut Page, figures: &Figures) {
    let lines: Vec<Line> = lines(figures)
        .into_iter()
        .filter(|line| line.blocking.is_some() || line.spinning.is_some())
        .collect();
    if lines.is_empty() {
        return;
    }
    page.heading("Goals");
    let counted = || lines.iter().filter(|line| !line.is_besides);
    let cells = || counted().flat_map(|line| [&line.blocking, &line.spinning]).flatten();
    let (all, met) = (cells().count(), cells().filter(|cell| cell.is_met()).count());
    page.say(&format!(
        "What this service is to reach on a machine with two cores, load included. {met} of {all} \
         figures do. *Blocking* is a cell whose threads sleep when there is nothing to do, as is \
         the default; *spinning* one whose threads look for work a little longer before they do. \
         Factors are medians of those within a round; ZooKeeper and etcd are counted with \
         whichever is faster for them, one member or all. Beside those on tmpfs the goals are \
         shown, too, where that was measured, and not counted."
    ));
    let text = |cell: &Option<Cell>| cell.as_ref().map(Cell::text).unwrap_or_default();
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            vec![line.what.clone(), line.goal.clone(), text(&line.blocking), text(&line.spinning)]
        })
        .collect();
    page.listing(&["load", "goal", "blocking", "spinning"], &rows);
}

fn lines(figures: &Figures) -> Vec<Line> {
    let factor = |what: &str, case: Case, peer: Side, times: f64| {
        let cell = |side| {
            let peer = (peer, best(figures, peer, case.to_one())?);
            let value = figures.ratio((side, case), peer, per_second)?.median;
            Some(Cell { value, bound: Bound::AtLeast(times), shown: three_digits })
        };
        Line {
            what: what.to_owned(),
            goal: format!("at least {times} x {}", plain(peer)),
            is_besides: peer.is_variant(),
            blocking: cell(Side::Ours),
            spinning: cell(Side::OursSpinning),
        }
    };
    let pairs = |in_flight| Case::new(What::Pairs, in_flight);
    let mut lines = vec![
        factor("pairs, 512 in flight, one node", pairs(512), Side::Redis, 1.5),
        factor("pairs, 512 in flight, spread", pairs(512).spread(), Side::Redis, 2.0),
        factor("pairs, 512 in flight, one node", pairs(512), Side::Redlock, 4.0),
        factor("pairs, 512 in flight, one node", pairs(512), Side::ZooKeeper, 20.0),
        factor("pairs, 512 in flight, one node", pairs(512), Side::ZooKeeperInMemory, 20.0),
        factor("pairs, 512 in flight, one node", pairs(512), Side::Etcd, 50.0),
        factor("pairs, 512 in flight, one node", pairs(512), Side::EtcdInMemory, 50.0),
        factor("pairs, 64 in flight, one node", pairs(64), Side::Redis, 1.3),
        factor("pairs, 64 in flight, cores awake", Case::new(What::Awake, 64), Side::Redis, 1.0),
    ];
    for clients in [64, 512] {
        let what = format!("pairs, {clients} clients with a connection each");
        let case = Case::new(What::OwnConnections, clients);
        lines.push(factor(&what, case, Side::Redis, 1.0));
    }
    for (in_flight, times) in [(64, 2.0), (512, 4.0)] {
        let what = format!("renewals, {in_flight} in flight");
        lines.push(factor(&what, Case::new(What::Renewals, in_flight), Side::Redis, times));
    }
    lines.extend(alone(figures));
    lines.extend(handovers(figures));
    if let Some(measured) = &figures.scale {
        lines.extend(at_scale(measured));
    }
    lines
}

/// One client and nobody else: the median of a pair.
fn alone(figures: &Figures) -> [Line; 3] {
    let case = Case::new(What::Pairs, 1);
    let median = |turn: &Turn| turn.latency_us[0];
    let cell = |side, peer, max| {
        let value = figures.ratio((side, case), (peer, case), median)?.median;
        Some(Cell { value, bound: Bound::AtMost(max), shown: three_digits })
    };
    let what = "1 in flight, median of a pair";
    let tenth = |peer| Line {
        what: what.to_owned(),
        goal: format!("at most a tenth of {}", plain(peer)),
        is_besides: peer.is_variant(),
        blocking: cell(Side::Ours, peer, 0.1),
        spinning: cell(Side::OursSpinning, peer, 0.1),
    };
    [
        Line {
            what: what.to_owned(),
            goal: "at most 1.2 x Redlock; 0.5 x spinning".to_owned(),
            is_besides: false,
            blocking: cell(Side::Ours, Side::Redlock, 1.2),
            spinning: cell(Side::OursSpinning, Side::Redlock, 0.5),
        },
        tenth(Side::Etcd),
        tenth(Side::EtcdInMemory),
    ]
}

fn handovers(figures: &Figures) -> [Line; 3] {
    let case = Case::new(What::Handovers, 16);
    let what = || "hand-overs, 16 clients on one name".to_owned();
    let rate = |side, min| {
        let value = figures.row(side, case)?.median(per_second);
        Some(Cell { value, bound: Bound::AtLeast(min), shown: count })
    };
    let shares = |side| {
        let value = figures.row(side, case)?.unevenness()?;
        Some(Cell { value, bound: Bound::AtMost(1.5), shown: unevenness })
    };
    let factor = |side| {
        let peer = (Side::ZooKeeper, best(figures, Side::ZooKeeper, case)?);
        let value = figures.ratio((side, case), peer, per_second)?.median;
        Some(Cell { value, bound: Bound::AtLeast(20.0), shown: three_digits })
    };
    [
        Line {
            what: what(),
            goal: "at least 12 k/s; 25 k/s spinning".to_owned(),
            is_besides: false,
            blocking: rate(Side::Ours, 12e3),
            spinning: rate(Side::OursSpinning, 25e3),
        },
        Line {
            what: what(),
            goal: "luckiest at most 1.5 x unluckiest".to_owned(),
            is_besides: false,
            blocking: shares(Side::Ours),
            spinning: shares(Side::OursSpinning),
        },
        Line {
            what: what(),
            goal: format!("at least 20 x {}", plain(Side::ZooKeeper)),
            is_besides: false,
            blocking: factor(Side::Ours),
            spinning: factor(Side::OursSpinning),
        },
    ]
}

/// What is about many leases, or about what goes wrong.
fn at_scale(measured: &crate::scale::Figures) -> [Line; 6] {
    let at_most = |value: Option<f64>, max, shown| {
        value.map(|value| Cell { value, bound: Bound::AtMost(max), shown })
    };
    let millis = |value: f64| micros(value * 1e3);
    let line = |what: &str, goal: &str, blocking, spinning| Line {
        what: what.to_owned(),
        goal: goal.to_owned(),
        is_besides: false,
        blocking,
        spinning,
    };
    let gap = |side, lost| at_most(scale::gap_max_ms(measured, side, lost), 50.0, millis);
    let worst = scale::worst_beside_neighbour(measured);
    let worst = worst.map(|value| Cell { value, bound: Bound::AtLeast(0.9), shown: three_digits });
    [
        line(
            "memory per held lease and node",
            "at most 88 bytes",
            at_most(scale::bytes_max(measured), 88.0, three_digits),
            None,
        ),
        line(
            "CPU per pair, however many leases are held",
            "dearest at most 1.2 x cheapest",
            at_most(scale::cost_growth(measured, Side::Ours), 1.2, three_digits),
            None,
        ),
        line(
            "many leases taken, renewed, expired",
            "no turn of a shard over 10 ms",
            at_most(scale::longest_turn_ms(measured), 10.0, millis),
            None,
        ),
        line(
            "`kill -9` of a node, clients of all or of others",
            "longest gap at most 50 ms",
            gap(Side::Ours, false),
            gap(Side::OursSpinning, false),
        ),
        line(
            "`kill -9` of a node, its own clients",
            "longest gap at most 50 ms",
            gap(Side::Ours, true),
            gap(Side::OursSpinning, true),
        ),
        line("one core taken by a neighbour", "at least 0.9 x blocking", None, worst),
    ]
}

/// To one member or to all, whichever is faster for this service.
fn best(figures: &Figures, side: Side, case: Case) -> Option<Case> {
    let speed = |case: &Case| figures.row(side, *case).map(|row| row.median(per_second));
    let cases = [case, case.spread()].into_iter().filter(|case| speed(case).is_some());
    cases.max_by(|one, other| speed(one).unwrap_or(0.0).total_cmp(&speed(other).unwrap_or(0.0)))
}

/// As the goals call it.
const fn plain(side: Side) -> &'static str {
    match side {
        Side::Redis | Side::RedisSaving => "one Redis",
        Side::Redlock => "Redlock",
        Side::Ours | Side::OursSpinning => "ours",
        Side::ZooKeeper => "ZooKeeper, on disk",
        Side::ZooKeeperInMemory => "ZooKeeper, on tmpfs",
        Side::Etcd => "etcd, on disk",
        Side::EtcdInMemory => "etcd, on tmpfs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_says_so() {
        let cell = |value, bound| Cell { value, bound, shown: three_digits }.text();
        assert_eq!(cell(1.5, Bound::AtLeast(1.5)), "1.50, met");
        assert_eq!(cell(1.49, Bound::AtLeast(1.5)), "1.49, **missed**");
        assert_eq!(cell(f64::INFINITY, Bound::AtMost(1.5)), "inf, **missed**");
    }
}
