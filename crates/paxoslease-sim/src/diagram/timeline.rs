//! Converts true time to pixels. Where events happen the scale is even, so that slopes of arrows
//! can be compared. Long periods without events are cut short, and the axis shows that.

use crate::trace::TrueTime;

/// The width of a typical message's delay, in pixels.
const FLIGHT_WIDTH: f64 = 80.0;
/// The least and the greatest width of a period without events, in pixels.
const QUIET_WIDTHS: (f64, f64) = (46.0, 150.0);
/// The least and the greatest width of the whole axis, in pixels.
const WIDTH_MIN: f64 = 1150.0;
const WIDTH_MAX: f64 = 1560.0;

/// Maps instants to x, for the instants of one diagram.
pub(super) struct Timeline {
    left: f64,
    /// Every instant with its x, in order.
    stops: Vec<(u64, f64)>,
    /// Pixels per nanosecond where the axis is not broken.
    scale: f64,
    /// The greatest width of a period without events.
    quiet: f64,
}

impl Timeline {
    /// `flight` is the delay of a typical message.
    pub(super) fn new(left: f64, mut instants: Vec<TrueTime>, flight: Option<u64>) -> Self {
        instants.sort_unstable();
        instants.dedup();
        let gaps: Vec<f64> = instants.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
        let whole = gaps.iter().sum::<f64>().max(1.0);
        let flight = flight.map_or(whole * FLIGHT_WIDTH / WIDTH_MIN, |flight| flight.max(1) as f64);
        let quiet = |scale: f64| (flight * scale * 1.05).clamp(QUIET_WIDTHS.0, QUIET_WIDTHS.1);
        let width =
            |scale: f64| gaps.iter().map(|gap| (gap * scale).min(quiet(scale))).sum::<f64>();
        let mut scale = FLIGHT_WIDTH / flight;
        // In steps of five per cent, until nothing changes.
        for _ in 0..200 {
            if width(scale) > WIDTH_MAX {
                scale *= 0.95;
            } else if width(scale) < WIDTH_MIN && width(scale * 1.05) > width(scale) * 1.001 {
                scale *= 1.05;
            } else {
                break;
            }
        }
        let quiet = quiet(scale);
        let mut x = left;
        let mut stops = Vec::with_capacity(instants.len());
        for (index, instant) in instants.iter().enumerate() {
            if index > 0 {
                x += (gaps[index - 1] * scale).min(quiet);
            }
            stops.push((instant.0, x));
        }
        Self { left, stops, scale, quiet }
    }

    /// The x of an instant. Instants outside are at the ends.
    pub(super) fn x(&self, instant: TrueTime) -> f64 {
        let next = self.stops.partition_point(|stop| stop.0 < instant.0);
        match (next.checked_sub(1).map(|i| self.stops[i]), self.stops.get(next)) {
            (Some((from, from_x)), Some(&(to, to_x))) => {
                let share = (instant.0 - from) as f64 / (to - from) as f64;
                from_x + share * (to_x - from_x)
            }
            (None, Some(&(_, x))) | (Some((_, x)), None) => x,
            (None, None) => self.left,
        }
    }

    /// The width of a span where the axis is not broken.
    pub(super) fn width_of(&self, nanos: u64) -> f64 {
        nanos as f64 * self.scale
    }

    /// The right end of the axis.
    pub(super) fn right(&self) -> f64 {
        self.stops.last().map_or(self.left, |stop| stop.1)
    }

    /// The periods that are cut short, as pairs of x.
    pub(super) fn breaks(&self) -> Vec<(f64, f64)> {
        let broken = |w: &&[(u64, f64)]| (w[1].0 - w[0].0) as f64 * self.scale > self.quiet * 1.5;
        self.stops.windows(2).filter(broken).map(|w| (w[0].1, w[1].1)).collect()
    }

    /// Instants to label on the axis, at least `apart` pixels from each other.
    pub(super) fn ticks(&self, apart: f64) -> Vec<(TrueTime, f64)> {
        let mut ticks: Vec<(TrueTime, f64)> = Vec::new();
        for &(nanos, x) in &self.stops {
            if ticks.last().is_none_or(|last| x - last.1 >= apart) {
                ticks.push((TrueTime(nanos), x));
            }
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn time_runs_to_the_right_and_long_quiet_is_cut_short() {
        let instants = [0, 10, 20, 5_000, 5_010].map(|ms| TrueTime(ms * MS)).to_vec();
        let timeline = Timeline::new(100.0, instants, Some(10 * MS));
        let x = |ms| timeline.x(TrueTime(ms * MS));
        assert!(x(0) < x(10) && x(10) < x(20) && x(20) < x(5_000) && x(5_000) < x(5_010));
        assert!(x(20) < x(21) && x(21) < x(5_000), "between stops too");
        assert!(x(5_000) - x(20) <= QUIET_WIDTHS.1 + 0.01);
        assert_eq!(timeline.breaks().len(), 1);
        assert!((x(10) - x(0) - (x(20) - x(10))).abs() < 0.01, "the scale is even");
    }

    #[test]
    fn nothing_and_one_instant_have_a_place() {
        assert_eq!(Timeline::new(9.0, Vec::new(), None).x(TrueTime(5)), 9.0);
        assert_eq!(Timeline::new(9.0, vec![TrueTime(3)], None).x(TrueTime(5)), 9.0);
    }
}
