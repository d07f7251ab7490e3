//! Why a client could not be started.

/// Why a client could not be started. Nothing runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The list of endpoints is empty.
    #[error("no endpoint given; expected host:port, for example 127.0.0.1:7400")]
    NoEndpoint,
    /// An endpoint is not valid.
    #[error("bad endpoint {endpoint:?}: {problem}; expected host:port, for example 10.0.0.1:7400")]
    Endpoint {
        /// The endpoint as it was given.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The thread of the client could not be started.
    #[error("cannot start the client's thread: {0}")]
    Thread(String),
}
