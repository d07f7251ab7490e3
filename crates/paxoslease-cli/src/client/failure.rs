//! Why a command failed: one line for the user, and an exit code for programs.
//!
//! The exit codes are stable: 1 for a lease that another client holds or that is over, 2 for bad
//! usage, and those of `sysexits.h` for the rest. The library's errors say what happened; this
//! module adds what to do next.

use std::time::Duration;

use paxoslease_client::{AcquireError, AskError, LeaseInfo, ReleaseError, RenewError, TtlError};

use super::text::{human_end, plain, quoted};
use crate::args::WaitArgs;

/// Bad usage, the same code as clap's.
const USAGE: u8 = 2;
/// EX_UNAVAILABLE: no node answers, or no majority.
pub(crate) const UNAVAILABLE: u8 = 69;
/// EX_TEMPFAIL: the lease was lost.
pub(crate) const LOST: u8 = 75;
/// EX_NOPERM: TLS or the token failed.
const DENIED: u8 = 77;

/// One line for the user, and the exit code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
    /// The longest ttl of the cell, if the ttl was longer.
    pub(crate) max_lease: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), max_lease: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(DENIED, message)
    }

    /// The same about another option, if it begins with `option`.
    pub(crate) fn about(mut self, option: &str, other: &str) -> Self {
        if let Some(problem) = self.message.strip_prefix(option) {
            self.message = format!("{other}{problem}");
        }
        self
    }

    /// A signal ended this process: no message, and the exit code that a shell would show.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self::new(u8::try_from(128 + signal).unwrap_or(u8::MAX), "")
    }

    pub(crate) fn is_by_signal(&self) -> bool {
        self.message.is_empty()
    }

    /// The failure of an acquire.
    pub(crate) fn to_acquire(error: AcquireError, waiting: &WaitArgs, waited: bool) -> Self {
        let conflict = waiting.conflict_exit_code;
        match error {
            AcquireError::Held { .. } if waiting.quiet => Self::new(conflict, ""),
            AcquireError::Held { name, holder } => {
                let then = if waited { "wait longer with --wait" } else { "wait with --wait 30s" };
                Self::new(conflict, format!("{}; {then}", held(&name, holder.as_ref())))
            }
            AcquireError::Ttl(problem) => {
                let max_lease = match problem {
                    TtlError::TooLong { max_lease, .. } => Some(max_lease.as_duration()),
                    TtlError::TooShort(_) => None,
                };
                Self { max_lease, ..Self::usage(format!("--ttl: {problem}")) }
            }
            AcquireError::Permits(_) => Self::usage(format!("--permits: {error}")),
            AcquireError::Holder(problem) => Self::usage(format!("--holder: {problem}")),
            AcquireError::Ask(error) => error.into(),
            error => Self::new(1, error.to_string()),
        }
    }
}

/// Who holds a name, as far as the cell knows.
pub(crate) fn held(name: &str, seen: Option<&LeaseInfo>) -> String {
    let name = quoted(name);
    match seen {
        None => format!("{name} was held by another client when the cell refused this request"),
        Some(LeaseInfo { name, holder, fence, remaining }) => {
            let name = quoted(name);
            let (holder, end) = (quoted(holder), human_end(*remaining));
            format!("{name} is held by {holder} (fence {fence}) {end}")
        }
    }
}

/// A problem without the endpoints, which the message names already, and without the OS error
/// number.
pub(crate) fn concise(endpoints: &[String], problem: &str) -> String {
    let problem = match endpoints {
        [only] => problem.strip_prefix(&format!("{only}: ")).unwrap_or(problem),
        _ => problem,
    };
    let problem = problem.split(" (os error ").next().unwrap_or(problem);
    plain(problem).into_owned()
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Unreachable { endpoints, problem } => Self::new(
                UNAVAILABLE,
                format!(
                    "no node reachable at {}: {}; is a cell running there? Try `paxoslease dev`, \
                     or --endpoint HOST:PORT",
                    endpoints.join(", "),
                    concise(&endpoints, &problem)
                ),
            ),
            // The nodes' messages say what to do.
            error if error == AskError::NO_MAJORITY => Self::new(
                UNAVAILABLE,
                "no majority of the cell answered in time; `paxoslease status` says which nodes are \
                 unreachable",
            ),
            AskError::NoQuorum(problem) => {
                Self::new(UNAVAILABLE, problem.replace("CELL.STATUS", "`paxoslease status`"))
            }
            error @ AskError::Quarantine(_) => Self::new(UNAVAILABLE, error.to_string()),
            AskError::Busy { problem, .. } | AskError::NotDurable(problem) => {
                Self::new(UNAVAILABLE, problem)
            }
            AskError::Unauthenticated(problem) => {
                let then = "pass --token-file FILE, or set PAXOSLEASE_TOKEN";
                Self::new(DENIED, format!("{problem}; {then}"))
            }
            AskError::Denied(problem) => Self::new(DENIED, problem),
            AskError::TlsRequired { endpoint } => {
                Self::new(DENIED, format!("{endpoint} requires TLS: pass --tls-ca FILE"))
            }
            AskError::TokenInClear { endpoint } => Self::new(
                DENIED,
                format!(
                    "refused to send the token to {endpoint} without TLS, because others could read \
                     it; pass --tls-ca FILE, or --insecure-plaintext if you trust the network"
                ),
            ),
            AskError::Tls { endpoint, problem } => Self::new(
                DENIED,
                format!("TLS with {endpoint} failed: {}; see --tls-ca", plain(&problem)),
            ),
            AskError::Name(problem) => Self::usage(format!("NAME: {problem}")),
            AskError::Protocol(problem) => Self::new(
                UNAVAILABLE,
                format!(
                    "not the client port of a PaxosLease node: {problem}; \
                     the port is 7400 unless configured otherwise, see --endpoint"
                ),
            ),
            error => Self::new(1, error.to_string()),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::NotHeld { name, fence } => {
                let then = "any more; acquire it again, for a new fence";
                Self::new(1, format!("{} is not held with fence {fence} {then}", quoted(&name)))
            }
            RenewError::Ttl(problem) => Self::usage(format!("--ttl: {problem}")),
            RenewError::Ask(error) => error.into(),
            error => Self::new(1, error.to_string()),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::NotHeld { name, fence } => {
                let why =
                    "it expired, was already released, or was never granted; see `paxoslease get`";
                Self::new(1, format!("{} is not held with fence {fence}: {why}", quoted(&name)))
            }
            ReleaseError::Unconfirmed(error) => {
                let Self { code, message, .. } = error.into();
                // Bad usage releases nothing, so the lease is as it was.
                let then = if code == USAGE { "" } else { ". The lease ends after its ttl" };
                Self::new(code, format!("{message}{then}"))
            }
            error => Self::new(1, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_trust_names_the_option_to_pass() {
        let endpoint = || "10.0.0.1:7400".to_owned();
        for (error, expected) in [
            (
                AskError::TokenInClear { endpoint: endpoint() },
                "refused to send the token to 10.0.0.1:7400 without TLS, because others could read \
                 it; pass --tls-ca FILE, or --insecure-plaintext if you trust the network",
            ),
            (
                AskError::TlsRequired { endpoint: endpoint() },
                "10.0.0.1:7400 requires TLS: pass --tls-ca FILE",
            ),
            (
                AskError::Unauthenticated("a token is required".to_owned()),
                "a token is required; pass --token-file FILE, or set PAXOSLEASE_TOKEN",
            ),
        ] {
            assert_eq!(Failure::from(error), Failure::new(DENIED, expected));
        }
    }
}
