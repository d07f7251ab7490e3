//! How a client is set up.

use std::fmt;
use std::time::Duration;

use crate::client::Client;
use crate::error::StartError;
use crate::tls::Tls;

/// The port nodes listen on for clients.
const PORT: u16 = 7400;

/// How a client is set up, from [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    pub(crate) endpoints: Vec<String>,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) token: Option<String>,
    pub(crate) token_in_clear: bool,
    pub(crate) name: Option<String>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            request_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_millis(500),
            tls: None,
            token: None,
            token_in_clear: false,
            name: None,
        }
    }
}

impl Builder {
    /// Adds endpoints: `host:port`, or several separated by commas. They are tried in order, and
    /// must be nodes of one cell. Without a port: 7400.
    pub fn endpoints(mut self, endpoints: &str) -> Self {
        let given = endpoints.split(',').map(str::trim).filter(|text| !text.is_empty());
        self.endpoints.extend(given.map(str::to_owned));
        self
    }

    /// How long a question may take before it fails, waiting for a lease not counted; 5 s unless
    /// told otherwise. Nodes give up after 2 s, so this leaves time to ask another.
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long an endpoint may take to greet before the next is tried; 500 ms unless told
    /// otherwise.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Speaks TLS, and nothing else: a node without it is none. Without this, connections are in
    /// clear.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The token to authenticate with, said first on every connection. Never shown, and never sent
    /// in clear to another machine unless [`Self::token_in_clear`] says so.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sends the token to other machines without TLS too: for networks where nobody listens, such
    /// as a tunnel. Whoever reads it can use it.
    pub const fn token_in_clear(mut self) -> Self {
        self.token_in_clear = true;
        self
    }

    /// What nodes call this client in their logs and lists.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Starts the client's thread. It connects with the first question.
    ///
    /// # Errors
    /// When there is no endpoint, one is none, or the system has no thread left.
    pub fn start(mut self) -> Result<Client, StartError> {
        if self.endpoints.is_empty() {
            return Err(StartError::NoEndpoint);
        }
        self.endpoints =
            self.endpoints.iter().map(|text| endpoint(text)).collect::<Result<_, _>>()?;
        Client::start(self)
    }
}

/// Secrets are not for logs.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, request_timeout, connect_timeout, tls, token, token_in_clear, name } =
            self;
        f.debug_struct("Builder")
            .field("endpoints", endpoints)
            .field("request_timeout", request_timeout)
            .field("connect_timeout", connect_timeout)
            .field("tls", tls)
            .field("token", &token.as_ref().map(|_| "(secret)"))
            .field("token_in_clear", token_in_clear)
            .field("name", name)
            .finish()
    }
}

/// Checks an endpoint, and adds the port if it has none.
pub(crate) fn endpoint(text: &str) -> Result<String, StartError> {
    let bad = |problem| StartError::Endpoint { endpoint: text.to_owned(), problem };
    // An IPv6 address stands in brackets, or its last group would look like a port.
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| bad("`[` without `]`"))?;
            let port = match port.strip_prefix(':') {
                None if !port.is_empty() => return Err(bad("something after `]`")),
                port => port,
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(bad("an IPv6 address stands in brackets"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(bad("no host"));
    }
    match port {
        None => Ok(format!("{text}:{PORT}")),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        Some(_) => Err(bad("the port is no number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_perhaps_a_port() {
        for (given, expected) in [
            ("a", "a:7400"),
            ("a.b:1", "a.b:1"),
            ("127.0.0.1:7410", "127.0.0.1:7410"),
            ("[::1]:7410", "[::1]:7410"),
            ("[::1]", "[::1]:7400"),
        ] {
            assert_eq!(endpoint(given).as_deref(), Ok(expected));
        }
        for given in ["", ":7400", "a:", "a:0", "a:65536", "a:b", "::1", "[::1", "[::1]7", "a b:1"]
        {
            let error = endpoint(given).expect_err(given).to_string();
            assert!(error.contains("expected host:port"), "{error}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let builder = Client::builder().endpoints("a, b:1,").token("hush");
        assert_eq!(builder.endpoints, ["a", "b:1"]);
        let shown = format!("{builder:?}");
        assert!(shown.contains("(secret)") && !shown.contains("hush"), "{shown}");
    }
}
