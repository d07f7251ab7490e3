//! The settings of a client.

use std::fmt;
use std::time::Duration;

use crate::client::Client;
use crate::error::StartError;
use crate::tls::Tls;

/// The port nodes listen on for clients.
const PORT: u16 = 7400;

/// The settings of a client, from [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
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
            connect_timeout: Duration::from_secs(1),
            tls: None,
            token: None,
            token_in_clear: false,
            name: None,
        }
    }
}

impl Builder {
    /// Adds endpoints: `host:port`, or several separated by commas. They are tried in order, and
    /// must be nodes of one cell. Without a port: 7400. One that answers is enough: it names the
    /// others.
    pub fn endpoints(mut self, endpoints: &str) -> Self {
        let given = endpoints.split(',').map(str::trim).filter(|text| !text.is_empty());
        self.endpoints.extend(given.map(str::to_owned));
        self
    }

    /// How long a request may take before it fails, without the wait for a lease; 5 s by default.
    /// Nodes give up after 2 s, so the default leaves time to ask another node.
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long a connection attempt may take before the client tries the next endpoint; 1 s by
    /// default. An attempt takes two round trips, and three with TLS.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Uses TLS for every connection, and refuses nodes without it. By default, connections are
    /// not encrypted.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The token to authenticate with, sent first on every connection. The client never shows it,
    /// and sends it unencrypted to another machine only with [`Self::token_in_clear`].
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Allows the client to send the token unencrypted to other machines, for trusted networks such
    /// as a tunnel. An eavesdropper could use the token.
    pub const fn token_in_clear(mut self) -> Self {
        self.token_in_clear = true;
        self
    }

    /// What nodes call this client in their logs and lists.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Starts the client's thread. It connects with the first request.
    ///
    /// # Errors
    /// When there is no endpoint, one is not valid, or the system has no thread left.
    pub fn build(mut self) -> Result<Client, StartError> {
        if self.endpoints.is_empty() {
            return Err(StartError::NoEndpoint);
        }
        self.endpoints =
            self.endpoints.iter().map(|text| endpoint(text)).collect::<Result<_, _>>()?;
        Client::start(self)
    }
}

/// Does not show the token, because the output may go to a log.
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
    if text.contains("://") {
        return Err(bad(
            "an endpoint has no scheme, and its port is that for clients, not for HTTP",
        ));
    }
    if text.contains([';', ' ']) {
        return Err(bad("commas separate endpoints"));
    }
    // An IPv6 address needs brackets, or its last group would look like a port.
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
                return Err(bad("an IPv6 address needs brackets"));
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
        Some(_) => Err(bad("the port is not a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_with_an_optional_port() {
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
        for (given, problem) in [
            ("http://127.0.0.1:7402", "an endpoint has no scheme"),
            ("redis://127.0.0.1:7400", "an endpoint has no scheme"),
            ("a:1;b:2", "commas separate endpoints"),
            ("a:1 b:2", "commas separate endpoints"),
            ("::1", "an IPv6 address needs brackets"),
        ] {
            let error = endpoint(given).expect_err(given).to_string();
            assert!(error.contains(problem), "{error}");
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
