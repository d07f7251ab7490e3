//! Detects panics anywhere in the process. A panic ends only its thread or task, so the sender of
//! the bytes would only see a closed connection.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static PANICKED: AtomicBool = AtomicBool::new(false);

/// Installs a panic hook, once.
pub(crate) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, Ordering::SeqCst);
            before(info);
        }));
    });
}

/// # Panics
/// When any thread or task of the process panicked.
pub(crate) fn check() {
    assert!(!PANICKED.load(Ordering::SeqCst), "another thread or task panicked, see above");
}
