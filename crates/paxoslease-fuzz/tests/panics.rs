//! A test of the checks, alone in its process: a panic in another thread is noticed.

use std::panic::catch_unwind;
use std::thread;

use paxoslease_fuzz::{daemons_answer, http};

#[test]
fn a_panic_in_another_thread_fails_the_next_input() {
    let request = b"GET /healthz\n";
    http(request);
    assert!(daemons_answer());
    assert!(thread::spawn(|| panic!("on purpose")).join().is_err());
    assert!(catch_unwind(|| http(request)).is_err());
}
