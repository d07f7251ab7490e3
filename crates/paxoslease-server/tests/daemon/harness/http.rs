//! HTTP by a plain client, and by bytes where a client would be in the way.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::SocketAddr;

use serde_json::Value;
use ureq::http::{HeaderMap, Request};

use super::{Daemon, Wire};

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A field of the body that must be a text.
    pub(crate) fn field(&self, key: &str) -> String {
        let json = self.json();
        json[key].as_str().unwrap_or_else(|| panic!("no {key}: {json}")).to_owned()
    }

    /// Status and code of an error.
    pub(crate) fn error(&self) -> (u16, String) {
        assert!(!self.field("message").is_empty());
        (self.status, self.field("error"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Daemon {
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, None, Some(("application/json", &body.to_string())))
    }

    /// Asks on a new connection. The body comes with its content type.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<(&str, &str)>,
    ) -> Reply {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let url = format!("http://{}{path}", self.http());
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answered = match body {
            None => agent.run(request.body(()).expect("a request")),
            Some((content_type, body)) => {
                let request = request.header("content-type", content_type);
                agent.run(request.body(body).expect("a request"))
            }
        };
        let mut response = answered.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let text = response.body_mut().read_to_string().expect("a whole body");
        Reply { status: response.status().as_u16(), headers: response.headers().clone(), text }
    }

    /// Acquires a free name for a minute, and returns the fence.
    pub(crate) fn take(&self, name: &str) -> String {
        let body = serde_json::json!({"ttl": "60s", "holder": "taker"});
        let reply = self.post(&format!("/v1/leases/{name}/acquire"), &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.field("fence")
    }
}

/// A connection for requests that are written as bytes.
pub(crate) struct Raw(pub(crate) BufReader<Wire>);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::on(Wire::connect(address))
    }

    pub(crate) fn on(wire: Wire) -> Self {
        Self(BufReader::new(wire))
    }

    pub(crate) fn send(&mut self, bytes: &str) {
        assert!(self.0.get_mut().send(bytes.as_bytes()), "the daemon reads");
    }

    /// Sends method and path, and these header lines, each with its line end.
    pub(crate) fn send_head(&mut self, request: &str, headers: &str) {
        self.send(&format!("{request} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"));
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) {
        self.ask_and_send(method, path, body, "");
    }

    /// Sends a request, and in the same write what follows it.
    pub(crate) fn ask_and_send(&mut self, method: &str, path: &str, body: &str, more: &str) {
        let len = body.len();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {len}\r\n\r\n{body}{more}"
        ));
    }

    /// Begins a watch. Once this returns, no later change is missed.
    pub(crate) fn watch(&mut self, query: &str, headers: &str) {
        self.send_head(&format!("GET /v1/watch{query}"), headers);
        assert_eq!(self.line().expect("a status"), "HTTP/1.1 200 OK");
        let head: Vec<String> =
            std::iter::from_fn(|| self.line().filter(|line| !line.is_empty())).collect();
        assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
        while self.line().expect("a comment") != ": watching" {}
    }

    /// The next event of a watch and its data; `None` after the last chunk.
    pub(crate) fn event(&mut self) -> Option<(String, Value)> {
        let event = loop {
            let line = self.line().expect("the stream is not cut off");
            if let Some(event) = line.strip_prefix("event: ") {
                break event.to_owned();
            }
            if line == "0" {
                return None;
            }
        };
        let data = self.line().expect("data");
        let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("no data: {data}"));
        Some((event, serde_json::from_str(data).expect("JSON")))
    }

    /// One line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).expect("UTF-8");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// A response that says how long it is.
    pub(crate) fn reply(&mut self) -> Reply {
        let status = self.line().expect("a response");
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let mut headers = HeaderMap::new();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').expect("a header");
            let name: ureq::http::HeaderName = name.parse().expect("a name");
            headers.append(name, value.trim().parse().expect("a value"));
        }
        let len = headers.get("content-length").and_then(|len| len.to_str().ok()?.parse().ok());
        let mut text = vec![0; len.unwrap_or(0)];
        self.0.read_exact(&mut text).expect("a whole body");
        let text = String::from_utf8(text).expect("UTF-8");
        Reply { status, headers, text }
    }

    /// Whether the daemon has closed the connection, once it sends or closes.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.0.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}
