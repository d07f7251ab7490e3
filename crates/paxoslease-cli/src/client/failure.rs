//! Why a command failed: one line for people, and an exit code for programs.
//!
//! The codes are pinned: 1 for a lease that is somebody else's or over, 2 for bad usage, and those
//! of `sysexits.h` for the rest. The library's errors say what happened; what to type next is said
//! here.

use std::error::Error;
use std::fmt;

use paxoslease_client::{AcquireError, AskError, ReleaseError, RenewError, Sighting};

use super::text::{plain, quoted, span};

/// Bad usage, as clap has it.
const USAGE: u8 = 2;
/// EX_UNAVAILABLE: nobody answers, or no majority.
pub(crate) const UNAVAILABLE: u8 = 69;
/// EX_TEMPFAIL: the lease was lost.
pub(crate) const LOST: u8 = 75;
/// EX_NOPERM: one side does not trust the other.
const DENIED: u8 = 77;

/// What went wrong, in one line, and the exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(DENIED, message)
    }

    /// Somebody asked this process to end. Nothing to say, and the code a shell would show.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self::new(u8::try_from(128 + signal).unwrap_or(u8::MAX), "")
    }

    pub(crate) fn is_by_signal(&self) -> bool {
        self.message.is_empty()
    }

    /// Of an acquire whose conflicts exit with `conflict`, after waiting or without.
    pub(crate) fn to_acquire(error: AcquireError, conflict: u8, waited: bool) -> Self {
        match error {
            AcquireError::Held { name, seen } => {
                let then = if waited { "wait longer with --wait" } else { "wait with --wait 30s" };
                Self::new(conflict, format!("{}; {then}", held(&name, seen.as_ref())))
            }
            AcquireError::Ttl(problem) => Self::usage(format!("--ttl: {problem}")),
            AcquireError::Holder(problem) => Self::usage(format!("--holder: {problem}")),
            AcquireError::Ask(error) => error.into(),
            error => Self::new(1, error.to_string()),
        }
    }
}

/// Who holds a name, as far as anybody knows.
pub(crate) fn held(name: &str, seen: Option<&Sighting>) -> String {
    let name = quoted(name);
    match seen {
        None => format!("{name} is held by somebody else, or was a moment ago"),
        Some(Sighting { holder, fence, remaining, .. }) => {
            let (holder, left) = (quoted(holder), span(*remaining));
            format!("{name} is held by {holder} (fence {fence}) for {left} more unless renewed")
        }
    }
}

/// A problem without what was said already, and without the system's number for it.
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
            // Nodes say themselves what to do.
            AskError::NoQuorum(problem) => {
                Self::new(UNAVAILABLE, problem.replace("CELL.STATUS", "`paxoslease status`"))
            }
            AskError::Quarantine(problem) | AskError::Busy(problem) => {
                Self::new(UNAVAILABLE, problem)
            }
            AskError::Unauthenticated(problem) => {
                Self::new(DENIED, format!("{problem}; see --token-file and PAXOSLEASE_TOKEN"))
            }
            AskError::Denied(problem) => Self::new(DENIED, problem),
            AskError::Tls { endpoint, problem } => Self::new(
                DENIED,
                format!("no trust between here and {endpoint}: {}; see --tls-ca", plain(&problem)),
            ),
            AskError::Name(problem) => Self::usage(problem),
            AskError::Protocol(problem) => Self::new(
                UNAVAILABLE,
                format!(
                    "that is not what a PaxosLease node says on its port for clients: {problem}; \
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
            RenewError::NotHeld { name, fence } => Self::new(
                1,
                format!(
                    "{} is not held with fence {fence} any more; acquire it anew, for a new fence",
                    quoted(&name)
                ),
            ),
            RenewError::Ttl(problem) => Self::usage(format!("--ttl: {problem}")),
            RenewError::Ask(error) => error.into(),
            error => Self::new(1, error.to_string()),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::NotHeld { name, fence } => Self::new(
                1,
                format!(
                    "{} is not held with fence {fence}: it ran out, was given back before, or \
                     never was; see `paxoslease get`",
                    quoted(&name)
                ),
            ),
            ReleaseError::Unconfirmed(error) => {
                let Self { code, message } = error.into();
                Self::new(code, format!("{message}. The lease is free when its ttl is over"))
            }
            error => Self::new(1, error.to_string()),
        }
    }
}
