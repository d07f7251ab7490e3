//! One test per normative sentence of the paper (sections 1 to 8), named after it.
//!
//! Where docs/protocol.md departs from the paper, the test shows the difference and cites the rule
//! that asks for it. A sentence that only motivates has no test.

mod cell;

#[path = "paper/basic.rs"]
mod basic;
#[path = "paper/definitions.rs"]
mod definitions;
#[path = "paper/extending.rs"]
mod extending;
#[path = "paper/proof.rs"]
mod proof;
#[path = "paper/releasing.rs"]
mod releasing;

use cell::{MS, NO_WAIT, TestCell, WAIT};

/// A cell in which every round has the paper's two phases.
fn two_phases(members: u16, proposers: u16) -> TestCell {
    TestCell::with(members, proposers, |config| config.direct_rounds = false)
}
