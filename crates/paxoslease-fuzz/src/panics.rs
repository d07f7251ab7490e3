//! Panics of the whole process. A thread's ends that thread and a task's ends that task; whoever
//! gave them their bytes would see a connection close, and nothing else.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static PANICKED: AtomicBool = AtomicBool::new(false);

/// From now on none is missed.
pub(crate) fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, Ordering::SeqCst);
            before(info);
        }));
    });
}

/// # Panics
/// When anything else did.
pub(crate) fn check() {
    assert!(!PANICKED.load(Ordering::SeqCst), "another thread or a task panicked, as said above");
}
