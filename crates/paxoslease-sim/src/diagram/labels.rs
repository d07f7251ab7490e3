//! Finds room for texts. A text is approximated by a row of discs. The place with the fewest discs
//! on other texts and arrows wins. Greedy and deterministic.

use super::svg::{Point, at, width_of};

/// The radius of a disc: half a line of text.
const DISC: f64 = 6.5;

/// For a text that must appear whatever it covers.
pub(super) const ANY: usize = usize::MAX;

/// The texts placed so far, and the arrows to avoid.
#[derive(Default)]
pub(super) struct Labels {
    discs: Vec<Point>,
    arrows: Vec<(Point, Point)>,
}

/// A place for a text: its centre and its angle in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Place {
    pub(super) centre: Point,
    pub(super) angle: f64,
}

impl Place {
    pub(super) const fn level(centre: Point) -> Self {
        Self { centre, angle: 0.0 }
    }
}

impl Labels {
    /// Texts should not cross this line.
    pub(super) fn avoid(&mut self, from: Point, to: Point) {
        self.arrows.push((from, to));
    }

    /// Texts should not cover this point.
    pub(super) fn block(&mut self, point: Point) {
        self.discs.push(point);
    }

    /// A text that stands here in any case.
    pub(super) fn reserve(&mut self, place: Place, text: &str, size: f64) {
        self.discs.extend(discs(place, text, size));
    }

    /// Chooses the best of the places, earlier ones first among equals. `None` when each has more
    /// than `covered_max` discs on another text.
    pub(super) fn place(
        &mut self,
        places: impl IntoIterator<Item = Place>,
        text: &str,
        size: f64,
        covered_max: usize,
    ) -> Option<Place> {
        let cost = |place: Place| -> (usize, usize) {
            let mine = discs(place, text, size);
            let near = |a: &Point, b: &Point| (a.x - b.x).hypot(a.y - b.y) < 2.0 * DISC - 1.0;
            let covered = |bead: &&Point| self.discs.iter().any(|other| near(bead, other));
            let crossed = |bead: &&Point| {
                self.arrows.iter().any(|(from, to)| distance(**bead, *from, *to) < DISC - 1.0)
            };
            (mine.iter().filter(covered).count(), mine.iter().filter(crossed).count())
        };
        let ((covered, _), best) = places
            .into_iter()
            .map(|place| (cost(place), place))
            .reduce(|best, next| if next.0 < best.0 { next } else { best })?;
        if covered > covered_max {
            return None;
        }
        self.reserve(best, text, size);
        Some(best)
    }
}

fn discs(place: Place, text: &str, size: f64) -> Vec<Point> {
    let width = width_of(text, size);
    let count = (width / (1.5 * DISC)).ceil().max(1.0);
    let (sin, cos) = place.angle.to_radians().sin_cos();
    // The baseline is below the middle of the letters.
    let (up_x, up_y) = (sin * size * 0.35, -cos * size * 0.35);
    (0..=count as u32)
        .map(|i| {
            let along = (f64::from(i) / count - 0.5) * width;
            at(place.centre.x + along * cos + up_x, place.centre.y + along * sin + up_y)
        })
        .collect()
}

fn distance(point: Point, from: Point, to: Point) -> f64 {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = (dx * dx + dy * dy).max(1e-9);
    let share = (((point.x - from.x) * dx + (point.y - from.y) * dy) / length).clamp(0.0, 1.0);
    (point.x - from.x - share * dx).hypot(point.y - from.y - share * dy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_text_goes_where_the_first_is_not() {
        let [here, there] = [100.0, 140.0].map(|y| Place::level(at(100.0, y)));
        let mut labels = Labels::default();
        assert_eq!(labels.place([here, there], "Propose 1.1", 12.0, ANY), Some(here));
        assert_eq!(labels.place([here, there], "Propose 1.1", 12.0, ANY), Some(there));
        assert_eq!(labels.place([here, there], "Propose 1.1", 12.0, 0), None);
        assert!(labels.place([here], "Propose 1.1", 12.0, ANY).is_some(), "needed all the same");
    }

    #[test]
    fn a_text_keeps_off_arrows_if_it_can() {
        let [here, there] = [100.0, 140.0].map(|y| Place::level(at(100.0, y)));
        let mut labels = Labels::default();
        labels.avoid(at(100.0, 80.0), at(100.0, 120.0));
        assert_eq!(labels.place([here, there], "Accept", 12.0, 0), Some(there));
    }
}
