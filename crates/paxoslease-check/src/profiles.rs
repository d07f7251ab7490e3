//! The bounds we search.

use crate::{Bounds, Wish};

/// Bounds that together take a minute or two.
#[must_use]
pub fn quick() -> Vec<Bounds> {
    vec![
        Bounds { ticks: 2, ..Bounds::new("two contenders, direct") },
        Bounds { ticks: 2, direct: false, ..Bounds::new("two contenders, prepared") },
    ]
}
