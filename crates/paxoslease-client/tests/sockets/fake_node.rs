//! A scripted node: it sends the greeting of a node, and a script answers each request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use paxoslease_wire::resp::Request;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What a fake node does with a request.
pub(crate) enum Action {
    Bytes(Vec<u8>),
    Ignore,
    Close,
}

impl Action {
    pub(crate) fn reply(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

type Script = Arc<dyn Fn(&[&str]) -> Action + Send + Sync>;

/// The open connections; `None` once the node has stopped.
type Streams = Arc<Mutex<Option<Vec<TcpStream>>>>;

pub(crate) struct FakeNode {
    endpoint: String,
    received: Receiver<Option<String>>,
    streams: Streams,
}

impl FakeNode {
    /// A node of this cell.
    pub(crate) fn start(
        cell: &str,
        script: impl Fn(&[&str]) -> Action + Send + Sync + 'static,
    ) -> Self {
        Self::serve(greeting(cell, &[]), None, None, Arc::new(script))
    }

    /// A node that reports these members.
    pub(crate) fn reporting(
        members: &[&str],
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&[&str]) -> Action + Send + Sync + 'static,
    ) -> Self {
        Self::serve(greeting("c", members), tls, None, Arc::new(script))
    }

    /// A node with TLS, which may require a token.
    pub(crate) fn with_tls(
        tls: Arc<ServerConfig>,
        token: Option<&str>,
        script: impl Fn(&[&str]) -> Action + Send + Sync + 'static,
    ) -> Self {
        let token = token.map(|token| (token.to_owned(), Arc::default()));
        Self::serve(greeting("c", &[]), Some(tls), token, Arc::new(script))
    }

    /// A node that requires this token, until the token is revoked.
    pub(crate) fn with_token(
        token: &str,
        is_revoked: &Arc<AtomicBool>,
        script: impl Fn(&[&str]) -> Action + Send + Sync + 'static,
    ) -> Self {
        let token = (token.to_owned(), Arc::clone(is_revoked));
        Self::serve(greeting("c", &[]), None, Some(token), Arc::new(script))
    }

    /// A server that accepts connections and sends nothing.
    pub(crate) fn mute() -> Self {
        Self::accept(|_, _| {})
    }

    /// Another kind of server, which sends this text after the first bytes.
    pub(crate) fn raw(text: &'static str) -> Self {
        Self::accept(move |mut stream, _| {
            let mut buffer = [0; 1024];
            if stream.read(&mut buffer).is_ok() {
                stream.write_all(text.as_bytes()).expect("the client listens");
            }
        })
    }

    fn serve(
        greeting: String,
        tls: Option<Arc<ServerConfig>>,
        token: Option<(String, Arc<AtomicBool>)>,
        script: Script,
    ) -> Self {
        Self::accept(move |stream, received| {
            let valid = |(token, is_revoked): &(String, Arc<AtomicBool>)| {
                let is_revoked = is_revoked.load(Ordering::Relaxed);
                if is_revoked { "none".to_owned() } else { token.clone() }
            };
            let (greeting, script) = (greeting.clone(), Arc::clone(&script));
            let session =
                FakeSession { greeting, token: token.as_ref().map(valid), script, received };
            let socket = stream.try_clone().expect("another handle");
            match &tls {
                None => session.run(stream),
                Some(tls) => {
                    let conn = ServerConnection::new(Arc::clone(tls)).expect("a connection");
                    session.run(StreamOwned::new(conn, stream));
                }
            }
            let _gone = socket.shutdown(Shutdown::Both);
        })
    }

    fn accept(talk: impl Fn(TcpStream, Sender<Option<String>>) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let (sender, received) = channel();
        let streams: Streams = Arc::new(Mutex::new(Some(Vec::new())));
        let open = Arc::clone(&streams);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut open = open.lock().expect("no panic");
                // `stop` wakes this thread by a connection.
                let Some(open) = open.as_mut() else { return };
                open.push(stream.try_clone().expect("another handle"));
                let (talk, sender) = (talk.clone(), sender.clone());
                thread::spawn(move || talk(stream, sender));
            }
        });
        Self { endpoint, received, streams }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The next request, except pings.
    #[track_caller]
    pub(crate) fn received(&self) -> String {
        loop {
            match self.received.recv().expect("it runs") {
                Some(received) if received == "PING" => {}
                received => return received.expect("the connection is there"),
            }
        }
    }

    /// All requests until a connection ends.
    pub(crate) fn received_until_closed(&self) -> Vec<String> {
        std::iter::from_fn(|| self.received.recv().expect("it runs")).collect()
    }

    /// Sends this to every client, without a request.
    pub(crate) fn push(&self, text: &str) {
        let streams = self.streams.lock().expect("no panic");
        for mut stream in streams.iter().flatten() {
            // A client may have left already.
            let _gone = stream.write_all(text.as_bytes());
        }
    }

    /// Closes every connection, and accepts no new one.
    pub(crate) fn stop(&self) {
        let streams = self.streams.lock().expect("no panic").take();
        for stream in streams.into_iter().flatten() {
            let _gone = stream.shutdown(Shutdown::Both);
        }
        drop(TcpStream::connect(&self.endpoint));
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.stop();
    }
}

fn greeting(cell: &str, members: &[&str]) -> String {
    let (len, count) = (cell.len(), members.len());
    let members: String = members.iter().map(|address| format!("+{address}\r\n")).collect();
    format!(
        "%8\r\n+server\r\n+paxoslease\r\n+cell\r\n${len}\r\n{cell}\r\n+node\r\n:1\r\n\
         +clock_drift_ppm\r\n:1000\r\n+clock_granularity_us\r\n:1000\r\n+max_lease_ms\r\n:60000\r\n\
         +epoch\r\n:0\r\n+members\r\n*{count}\r\n{members}"
    )
}

struct FakeSession {
    greeting: String,
    token: Option<String>,
    script: Script,
    received: Sender<Option<String>>,
}

impl FakeSession {
    fn run(mut self, mut stream: impl Read + Write) {
        let (mut inbox, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            while let Some((request, len)) = Request::parse(&inbox).expect("well formed") {
                let text = |arg: &&[u8]| String::from_utf8_lossy(arg).into_owned();
                let words: Vec<String> = request.args().iter().map(text).collect();
                inbox.drain(..len);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                match self.answer(&words) {
                    Action::Bytes(bytes) if stream.write_all(&bytes).is_ok() => {}
                    Action::Ignore => {}
                    Action::Bytes(_) | Action::Close => return,
                }
            }
            match stream.read(&mut buffer) {
                Ok(len) if len > 0 => inbox.extend_from_slice(&buffer[..len]),
                _ => {
                    let _closed = self.received.send(None);
                    return;
                }
            }
        }
    }

    fn answer(&mut self, request: &[&str]) -> Action {
        match request {
            ["AUTH", token] if self.token.as_deref() == Some(*token) => {
                self.token = None;
                Action::reply("+OK\r\n")
            }
            ["AUTH", _] if self.token.is_some() => Action::reply("-WRONGPASS no such token\r\n"),
            ["AUTH", _] => Action::reply("-ERR this node asks for no password\r\n"),
            _ if self.token.is_some() => Action::reply("-NOAUTH a token is needed\r\n"),
            ["HELLO", "3", "FOLLOW"] => Action::reply(&self.greeting),
            ["CLIENT", ..] => Action::reply("+OK\r\n"),
            request => {
                let _closed = self.received.send(Some(request.join(" ")));
                (self.script)(request)
            }
        }
    }
}
