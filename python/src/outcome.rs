//! What a request ended with, as objects of Python.

use std::time::Duration;

use paxoslease_client::{
    Change, Grant, LeaderChange, LeaseEnd, LeaseGuard, LeaseInfo, LeaseState, NodeStatus,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::lease::{NativeGrant, NativeLease};

/// What a request ends with.
pub(crate) type Outcome = Result<Success, Failure>;

pub(crate) enum Success {
    Done,
    Lease(LeaseGuard),
    Grant(Grant),
    Seen(Option<LeaseInfo>),
    Listed(Vec<LeaseInfo>),
    Status(Box<NodeStatus>),
    Changed(Change),
    Led(LeaderChange),
    /// The end of a stream.
    End,
    Progress((u64, LeaseState)),
    Ended(LeaseEnd),
}

impl Success {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Done => Ok(py.None()),
            Self::Lease(guard) => NativeLease::new(guard).into_py_any(py),
            Self::Grant(grant) => NativeGrant(grant).into_py_any(py),
            Self::Seen(seen) => seen.map(|seen| lease_info(py, seen)).transpose()?.into_py_any(py),
            Self::Listed(all) => {
                let all: PyResult<Vec<_>> =
                    all.into_iter().map(|seen| lease_info(py, seen)).collect();
                all?.into_py_any(py)
            }
            // All fields, known to this version or not.
            Self::Status(status) => {
                let fields = status.fields.to_string();
                let fields = py.import("json")?.call_method1("loads", (fields,))?;
                fields.set_item("endpoint", status.endpoint)?;
                fields.into_py_any(py)
            }
            Self::End => {
                Err(Failure::Other { class: "EndOfStream", text: String::new() }.raise(py))
            }
            Self::Changed(change) => self::change(py, change)?.into_py_any(py),
            Self::Led(LeaderChange::Vacant) => Ok(py.None()),
            Self::Led(LeaderChange::Elected(leader)) => {
                made(py, "Leader", (leader.holder, leader.fence))?.into_py_any(py)
            }
            Self::Progress((renewals, state)) => (renewals, state_name(state)).into_py_any(py),
            Self::Ended(end) => (end == LeaseEnd::Lost).into_py_any(py),
        }
    }
}

/// A text that Python compares with the members of its `LeaseState`.
pub(crate) const fn state_name(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Held => "held",
        LeaseState::Jeopardy => "jeopardy",
        _ => "lost",
    }
}

fn made<'py>(
    py: Python<'py>,
    class: &str,
    args: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(pyo3::intern!(py, "paxoslease._types"))?.getattr(class)?.call1(args)
}

/// A span in seconds. The longest span is for ever.
pub(crate) const fn seconds(span: Duration) -> f64 {
    match span {
        Duration::MAX => f64::INFINITY,
        span => span.as_secs_f64(),
    }
}

pub(crate) fn lease_info(py: Python<'_>, seen: LeaseInfo) -> PyResult<Bound<'_, PyAny>> {
    made(py, "LeaseInfo", (seen.name, seen.holder, seen.fence, seconds(seen.remaining)))
}

fn change(py: Python<'_>, change: Change) -> PyResult<Bound<'_, PyAny>> {
    let fields = PyDict::new(py);
    let kind = match change {
        Change::Held(seen) => {
            fields.set_item("name", &seen.name)?;
            fields.set_item("fence", seen.fence)?;
            fields.set_item("lease", lease_info(py, seen)?)?;
            "held"
        }
        Change::Freed { name } => {
            fields.set_item("name", name)?;
            "freed"
        }
        Change::Expired { name, fence } => {
            fields.set_item("name", name)?;
            fields.set_item("fence", fence)?;
            "expired"
        }
        Change::Missed(count) => {
            fields.set_item("missed", count)?;
            "missed"
        }
        Change::Connected { endpoint } => {
            fields.set_item("endpoint", endpoint)?;
            "connected"
        }
        Change::Disconnected { problem } => {
            fields.set_item("problem", problem)?;
            "disconnected"
        }
        _ => "unknown",
    };
    let class = py.import(pyo3::intern!(py, "paxoslease._types"))?.getattr("Change")?;
    class.call((kind,), Some(&fields))
}
