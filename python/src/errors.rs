//! The errors of the Rust client as exceptions of `paxoslease._errors`, with the same texts.

use std::process;
use std::time::Duration;

use paxoslease_client::{
    AcquireError, AskError, LeaseInfo, ReleaseError, RenewError, StartError, TlsError,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::outcome::lease_info;

/// Why a request failed.
pub(crate) enum Failure {
    Held { text: String, name: String, holder: Option<LeaseInfo> },
    Lost { text: String, name: String, fence: u64 },
    Other { class: &'static str, text: String },
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Other { class: "InvalidArgument", text: text.into() }
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        self.exception(py).map_or_else(|error| error, PyErr::from_value)
    }

    fn exception(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let make = |class, text: String| {
            py.import(pyo3::intern!(py, "paxoslease._errors"))?.getattr(class)?.call1((text,))
        };
        match self {
            Self::Held { text, name, holder } => {
                let error = make("Held", text)?;
                error.setattr("name", name)?;
                let holder = holder.map(|seen| lease_info(py, seen)).transpose()?;
                error.setattr("holder", holder)?;
                Ok(error)
            }
            Self::Lost { text, name, fence } => {
                let error = make("LeaseLost", text)?;
                error.setattr("name", name)?;
                error.setattr("fence", fence)?;
                Ok(error)
            }
            Self::Other { class, text } => make(class, text),
        }
    }
}

/// The error of a forked child that uses a value of its parent.
pub(crate) fn forked(owner: u32) -> PyErr {
    let text = format!(
        "this belongs to process {owner}, and this process ({}) was forked from it; a lease is \
         never shared: make a new Client after the fork",
        process::id()
    );
    Python::attach(|py| Failure::Other { class: "Forked", text }.raise(py))
}

/// The error of a second caller of something that one caller uses at a time.
pub(crate) fn busy() -> PyErr {
    PyRuntimeError::new_err("another thread or task waits for this already")
}

/// A number of seconds as a span; `what` names it in the error.
pub(crate) fn span(what: &str, seconds: f64) -> Result<Duration, Failure> {
    // As good as for ever, which a ttl cannot be.
    if seconds >= u64::MAX as f64 && what != "ttl" {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::invalid(format!("bad {what}: {seconds} is not a number of seconds")))
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let class = match error {
            AskError::Name(_) => "InvalidArgument",
            AskError::Stopped => "Closed",
            ref error if error.is_lack_of_trust() => "AccessDenied",
            _ => "Unavailable",
        };
        Self::Other { class, text: advise(&error) }
    }
}

/// The text of an error, with what to do in Python.
fn advise(error: &AskError) -> String {
    match error {
        error if *error == AskError::NO_MAJORITY => {
            "no majority of the cell answered in time; client.status() says which nodes are \
             unreachable"
                .to_owned()
        }
        // The nodes' messages say what to do, by the name of their command.
        AskError::NoQuorum(_) => error.to_string().replace("CELL.STATUS", "client.status()"),
        AskError::Unauthenticated(_) => format!("{error}; pass token= to Client"),
        AskError::TlsRequired { endpoint } => {
            format!("{endpoint} requires TLS: pass ca= to Client, the CA of the nodes")
        }
        AskError::TokenInClear { endpoint } => format!(
            "refused to send the token to {endpoint} without TLS, because others could read it; pass \
             ca= to Client, or token_in_clear=True if you trust the network"
        ),
        error => error.to_string(),
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let text = error.to_string();
        match error {
            AcquireError::Held { name, holder } => Self::Held { text, name, holder },
            AcquireError::Ask(error) => error.into(),
            _ => Self::invalid(text),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        let text = error.to_string();
        match error {
            RenewError::NotHeld { name, fence } => Self::Lost { text, name, fence },
            RenewError::Ask(error) => error.into(),
            _ => Self::invalid(text),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        let text = error.to_string();
        match error {
            ReleaseError::NotHeld { name, fence } => Self::Lost { text, name, fence },
            // A name that is not valid was never asked for.
            ReleaseError::Unconfirmed(error @ AskError::Name(_)) => error.into(),
            ReleaseError::Unconfirmed(error) => match error.into() {
                Self::Other { class, text: why } => {
                    let text = format!(
                        "the release was not confirmed, so the lease is free when its ttl is over: \
                         {why}"
                    );
                    Self::Other { class, text }
                }
                other => other,
            },
            _ => Self::Other { class: "Error", text },
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let class = match error {
            StartError::Thread(_) => "Unavailable",
            _ => "InvalidArgument",
        };
        Self::Other { class, text: error.to_string() }
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        Self::invalid(error.to_string())
    }
}
