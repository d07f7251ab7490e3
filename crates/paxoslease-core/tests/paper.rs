//! One test per normative sentence of the paper (sections 1 to 8), named after it.
//!
//! Where docs/protocol.md departs from the paper, the test shows what we do instead and says which
//! rule asks for it and why. A sentence that is only motivation has no test.

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

use core::time::Duration;

use cell::TestCell;

const NO_WAIT: Duration = Duration::ZERO;
const WAIT: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// A cell whose rounds all have the paper's two phases.
fn two_phases(members: u16, proposers: u16) -> TestCell {
    TestCell::with(members, proposers, |config| config.direct_rounds = false)
}

/// Lets time pass a millisecond at a time, delivering everything.
fn run(cell: &mut TestCell, span: Duration) {
    for _ in 0..span.as_millis() {
        cell.pass(MS);
        cell.settle();
    }
}
