//! The order of what several processes reported about holding the same names.
//!
//! They share a clock, and each reports between which two readings of it a guard was held. So every
//! overlap that is found here did happen, whatever the scheduler did in between.

use std::collections::BTreeMap;

use super::shell::Line;

/// One tenure: it was believed at an instant before the first of these and at an instant after the
/// second.
#[derive(Clone, Copy, Debug)]
struct Span {
    begun_before: u64,
    lasted_beyond: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    /// By name, by fence.
    spans: BTreeMap<String, BTreeMap<u64, Span>>,
}

impl Beliefs {
    /// Takes note of a line that reports a held lease. Invariants 1 and 3: the tenure with the
    /// lower fence was believed earlier, and never at the same time.
    pub(crate) fn note(&mut self, line: &Line) {
        if !line.is_held() {
            return;
        }
        let (from, to) = (line.number("from"), line.number("to"));
        let tenures = self.spans.entry(line.name().to_owned()).or_default();
        let span = tenures
            .entry(line.number("fence"))
            .or_insert(Span { begun_before: to, lasted_beyond: from });
        span.begun_before = span.begun_before.min(to);
        span.lasted_beyond = span.lasted_beyond.max(from);
        let mut last: Option<(u64, Span)> = None;
        for (fence, span) in tenures {
            if let Some((lower, before)) = last {
                assert!(
                    before.lasted_beyond <= span.begun_before,
                    "{} was held with fence {lower} ({before:?}) and {fence} ({span:?}) at once",
                    line.name()
                );
            }
            last = Some((*fence, *span));
        }
    }
}

#[test]
#[should_panic(expected = "at once")]
fn two_holders_at_once_would_be_noticed() {
    let mut beliefs = Beliefs::default();
    beliefs.note(&Line::new("held a fence=1 is_held=true from=10 to=11"));
    beliefs.note(&Line::new("held a fence=2 is_held=true from=20 to=21"));
    beliefs.note(&Line::new("held a fence=2 is_held=false from=22 to=23"));
    beliefs.note(&Line::new("held a fence=1 is_held=true from=22 to=23"));
}
