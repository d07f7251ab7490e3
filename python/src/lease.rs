//! Leases of Python: one that renews itself, and one that does not.

use std::sync::{Mutex, PoisonError};

use paxoslease_client::{Grant, LeaseEnd, LeaseGuard, LeaseState, LeaseView};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::outcome::{Success, seconds, state_name};
use crate::owned::Owned;
use crate::pending::Pending;

/// A lease that renews itself until it is released, dropped or lost.
#[pyclass(frozen, module = "paxoslease._native")]
pub(crate) struct NativeLease {
    name: String,
    holder: String,
    fence: u64,
    ttl: f64,
    held: Owned<Held>,
}

struct Held {
    /// `None` once it is released.
    guard: Mutex<Option<LeaseGuard>>,
    view: LeaseView,
}

impl NativeLease {
    pub(crate) fn new(guard: LeaseGuard) -> Self {
        let view = guard.view();
        Self {
            name: guard.name().to_owned(),
            holder: guard.holder().to_owned(),
            fence: guard.fence(),
            ttl: seconds(guard.ttl()),
            held: Owned::new(Held { guard: Mutex::new(Some(guard)), view }),
        }
    }
}

#[pymethods]
impl NativeLease {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn holder(&self) -> &str {
        &self.holder
    }

    #[getter]
    const fn fence(&self) -> u64 {
        self.fence
    }

    #[getter]
    const fn ttl(&self) -> f64 {
        self.ttl
    }

    fn is_held(&self) -> PyResult<bool> {
        Ok(self.held.get()?.view.is_held())
    }

    fn remaining(&self) -> PyResult<f64> {
        Ok(seconds(self.held.get()?.view.remaining()))
    }

    fn state(&self) -> PyResult<&'static str> {
        let view = &self.held.get()?.view;
        Ok(match view.end() {
            Some(LeaseEnd::Released) => "released",
            _ => state_name(view.state()),
        })
    }

    fn renewals(&self) -> PyResult<u64> {
        Ok(self.held.get()?.view.renewals())
    }

    /// Whether the lease was lost; False while it is held, and after a release.
    fn is_lost(&self) -> PyResult<bool> {
        Ok(self.held.get()?.view.end() == Some(LeaseEnd::Lost))
    }

    /// Waits until the lease is over. The result says whether it was lost.
    fn ended(&self) -> PyResult<Pending> {
        let view = self.held.get()?.view.clone();
        let ended = async move { Ok::<_, Failure>(view.ended().await) };
        Ok(Pending::new(ended, Success::Ended))
    }

    /// Waits until the lease was renewed or its state changed since it was so.
    fn changed(&self, renewals: u64, state: &str) -> PyResult<Pending> {
        let view = self.held.get()?.view.clone();
        let states = [LeaseState::Held, LeaseState::Jeopardy, LeaseState::Lost];
        let state = states.into_iter().find(|known| state_name(*known) == state);
        let seen = (renewals, state.unwrap_or(LeaseState::Lost));
        let changed = async move { Ok::<_, Failure>(view.changed_since(seen).await) };
        Ok(Pending::new(changed, Success::Progress))
    }

    /// Releases the lease; None if it was released before.
    fn release(&self) -> PyResult<Option<Pending>> {
        let guard = self.held.get()?.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(guard.map(|guard| Pending::new(guard.release(), |()| Success::Done)))
    }

    /// Releases the lease in the background.
    fn discard(&self) -> PyResult<()> {
        drop(self.held.get()?.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }
}

/// A lease that is not renewed. It is plain data and a clock, so a forked child may look at it.
#[pyclass(frozen, module = "paxoslease._native")]
pub(crate) struct NativeGrant(pub(crate) Grant);

#[pymethods]
impl NativeGrant {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    const fn fence(&self) -> u64 {
        self.0.fence()
    }

    #[getter]
    const fn ttl(&self) -> f64 {
        seconds(self.0.ttl())
    }

    #[getter]
    const fn waited(&self) -> f64 {
        seconds(self.0.waited())
    }

    fn is_held(&self) -> bool {
        self.0.is_held()
    }

    fn remaining(&self) -> f64 {
        seconds(self.0.remaining())
    }
}
