//! What clients of HTTP are promised.

mod document;
mod leaving;
mod limits;
mod listing;
mod metrics;
mod page;
mod watching;

use crate::harness::play;

#[test]
fn requests_are_answered_and_mistakes_are_named() {
    play("http.txt");
}
