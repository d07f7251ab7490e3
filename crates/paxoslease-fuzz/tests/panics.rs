//! A test of the checks, alone in its process: what panics where nobody looks is seen all the same.

use std::panic::catch_unwind;
use std::thread;

use paxoslease_fuzz::{http, is_served};

#[test]
fn a_panic_that_a_thread_keeps_to_itself_fails_the_next_input() {
    let request = b"GET /healthz\n";
    http(request);
    assert!(is_served());
    assert!(thread::spawn(|| panic!("on purpose")).join().is_err());
    assert!(catch_unwind(|| http(request)).is_err());
}
