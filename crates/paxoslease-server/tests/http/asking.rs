//! How these tests ask: by a plain client, and by bytes where a client would be in the way.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use ureq::http::{HeaderMap, Request};

use crate::cell::Member;

/// What came back.
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

    /// The field of a body, which must be a text.
    pub(crate) fn field(&self, key: &str) -> String {
        let json = self.json();
        json[key].as_str().unwrap_or_else(|| panic!("no {key}: {json}")).to_owned()
    }

    /// Status and code of a refusal, which has a message too.
    pub(crate) fn refusal(&self) -> (u16, String) {
        assert!(!self.field("message").is_empty());
        (self.status, self.field("error"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Member {
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, Some(("application/json", &body.to_string())))
    }

    /// Asks with whatever method, path, type and body; on a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> Reply {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let url = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(url);
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

    /// Takes a lease and says its fence.
    pub(crate) fn take(&self, name: &str) -> String {
        let body = serde_json::json!({"ttl": "60s", "holder": "taker"});
        let reply = self.post(&format!("/v1/leases/{name}/acquire"), &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.field("fence")
    }
}

/// A connection that is spoken to in bytes.
pub(crate) struct Raw(pub(crate) BufReader<TcpStream>);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).expect("it listens"))
    }

    pub(crate) fn on(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &str) {
        self.0.get_mut().write_all(bytes.as_bytes()).expect("it reads");
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) {
        let len = body.len();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {len}\r\n\r\n{body}"
        ));
    }

    /// One line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).expect("text");
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
            headers.insert(name, value.trim().parse().expect("a value"));
        }
        let len = headers.get("content-length").and_then(|len| len.to_str().ok()?.parse().ok());
        let mut text = vec![0; len.expect("a length")];
        self.0.read_exact(&mut text).expect("a whole body");
        let text = String::from_utf8(text).expect("text");
        Reply { status, headers, text }
    }

    /// Whether the other end has closed, once it says anything.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.0.fill_buf().map_or(true, <[u8]>::is_empty)
    }
}
