//! The native half of the Python package `paxoslease`: the Rust client behind a few classes.
//!
//! A request is a [`Pending`], which a thread waits for or an event loop polls. The package in
//! `paxoslease/` makes the interface of it that programs use. The client's own thread never takes
//! the interpreter lock, so it renews leases while Python code holds that lock.

mod client;
mod errors;
mod lease;
mod outcome;
mod owned;
mod pending;
mod ready;

/// The module as Python sees it.
#[pyo3::pymodule(name = "_native")]
mod native {
    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::client::{NativeClient, NativeStream};
    #[pymodule_export]
    use crate::lease::{NativeGrant, NativeLease};
    #[pymodule_export]
    use crate::pending::{Pending, begin_exit};
    #[pymodule_export]
    use crate::ready::Ready;
}
