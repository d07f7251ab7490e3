//! What several processes said about holding the same names, put in one order.
//!
//! They share a clock, and each tells between which two readings of it a guard said "held". So
//! what is reported here did happen, whatever the scheduler did in between.

use std::collections::BTreeMap;

use super::shell::Line;

/// Of one tenure: it was believed at some instant before the first of these and at some instant
/// after the second.
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
    /// Takes note of a line that says "held". Invariants 1 and 3: whoever has the lower fence
    /// believed it earlier, and never at the same time.
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
