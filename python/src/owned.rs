//! Values that belong to the process that made them.

use std::process;

use pyo3::PyResult;

use crate::errors;

/// A value that a forked child can neither use nor drop. The thread behind it runs in the parent
/// only, and a lock of it may be taken for ever in the child. The child leaks the value.
pub(crate) struct Owned<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
    pid: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), pid: process::id() }
    }

    /// The value, unless this process is a child of its owner.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let value = self.value.as_ref().filter(|_| self.is_here());
        value.ok_or_else(|| errors::forked(self.pid))
    }

    fn is_here(&self) -> bool {
        self.pid == process::id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
