//! A node that is a script: it greets as nodes do, and answers each request as it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use paxoslease_wire::resp::Request;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What a node does about a request.
pub(crate) enum Say {
    Bytes(Vec<u8>),
    Nothing,
    Close,
}

impl Say {
    pub(crate) fn line(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

type Script = Arc<dyn Fn(&[&str]) -> Say + Send + Sync>;

pub(crate) struct Fake {
    endpoint: String,
    heard: Receiver<Option<String>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The connections there are; none are taken any more once it stops.
    streams: Mutex<Option<Vec<TcpStream>>>,
}

impl Fake {
    /// A node of this cell.
    pub(crate) fn start(
        cell: &str,
        script: impl Fn(&[&str]) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::serve(cell, None, None, Arc::new(script))
    }

    /// One that speaks TLS, and may want to hear a token first.
    pub(crate) fn with_tls(
        tls: Arc<ServerConfig>,
        token: Option<&str>,
        script: impl Fn(&[&str]) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::serve("c", Some(tls), token.map(str::to_owned), Arc::new(script))
    }

    /// One that wants to hear this first.
    pub(crate) fn with_token(
        cell: &str,
        token: &str,
        script: impl Fn(&[&str]) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::serve(cell, None, Some(token.to_owned()), Arc::new(script))
    }

    /// One that wants to hear this first, until that is good for nothing any more.
    pub(crate) fn guarded(
        token: &str,
        is_revoked: &Arc<AtomicBool>,
        script: impl Fn(&[&str]) -> Say + Send + Sync + 'static,
    ) -> Self {
        let (token, is_revoked) = (token.to_owned(), Arc::clone(is_revoked));
        let (greeting, script) = (greeting("c"), Arc::new(script));
        Self::accept(move |stream, heard, _| {
            let is_good = !is_revoked.load(Ordering::Relaxed);
            let token = if is_good { token.clone() } else { "none".to_owned() };
            let (greeting, script) = (greeting.clone(), Arc::clone(&script) as Script);
            let socket = stream.try_clone().expect("another handle");
            Conversation { greeting, token: Some(token), script, heard }.run(stream);
            let _gone = socket.shutdown(Shutdown::Both);
        })
    }

    /// One that accepts and says nothing.
    pub(crate) fn mute() -> Self {
        Self::accept(|_, _, _| {})
    }

    /// Something else, that says this whatever it hears.
    pub(crate) fn raw(text: &'static str) -> Self {
        Self::accept(move |mut stream, _, _| {
            let mut buffer = [0; 1024];
            if stream.read(&mut buffer).is_ok() {
                stream.write_all(text.as_bytes()).expect("the client listens");
            }
        })
    }

    fn serve(
        cell: &str,
        tls: Option<Arc<ServerConfig>>,
        token: Option<String>,
        script: Script,
    ) -> Self {
        let greeting = greeting(cell);
        Self::accept(move |stream, heard, _| {
            let conversation = Conversation {
                greeting: greeting.clone(),
                token: token.clone(),
                script: Arc::clone(&script),
                heard,
            };
            let socket = stream.try_clone().expect("another handle");
            match &tls {
                None => conversation.run(stream),
                Some(tls) => {
                    let conn = ServerConnection::new(Arc::clone(tls)).expect("a connection");
                    conversation.run(StreamOwned::new(conn, stream));
                }
            }
            let _gone = socket.shutdown(Shutdown::Both);
        })
    }

    fn accept(
        talk: impl Fn(TcpStream, Sender<Option<String>>, &Shared) + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let (sender, heard) = channel();
        let shared = Arc::new(Shared { streams: Mutex::new(Some(Vec::new())) });
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut streams = ours.streams.lock().expect("no panic");
                // Whoever stops wakes this up by connecting.
                let Some(streams) = streams.as_mut() else { return };
                streams.push(stream.try_clone().expect("another handle"));
                let (talk, sender, ours) = (talk.clone(), sender.clone(), Arc::clone(&ours));
                thread::spawn(move || talk(stream, sender, &ours));
            }
        });
        Self { endpoint, heard, shared }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The next request it hears.
    #[track_caller]
    pub(crate) fn heard(&self) -> String {
        loop {
            match self.heard.recv().expect("it runs") {
                Some(heard) if heard == "PING" => {}
                heard => return heard.expect("the connection is there"),
            }
        }
    }

    /// All it hears until a connection ends.
    pub(crate) fn heard_until_closed(&self) -> Vec<String> {
        std::iter::from_fn(|| self.heard.recv().expect("it runs")).collect()
    }

    /// Says this to everybody, unasked.
    pub(crate) fn push(&self, text: &str) {
        let streams = self.shared.streams.lock().expect("no panic");
        for mut stream in streams.iter().flatten() {
            // Some may be gone already.
            let _gone = stream.write_all(text.as_bytes());
        }
    }

    /// Closes every connection, and accepts none any more.
    pub(crate) fn stop(&self) {
        let streams = self.shared.streams.lock().expect("no panic").take();
        for stream in streams.into_iter().flatten() {
            let _gone = stream.shutdown(Shutdown::Both);
        }
        drop(TcpStream::connect(&self.endpoint));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

fn greeting(cell: &str) -> String {
    let len = cell.len();
    format!(
        "%6\r\n+server\r\n+paxoslease\r\n+cell\r\n${len}\r\n{cell}\r\n+node\r\n:1\r\n\
         +clock_drift_ppm\r\n:1000\r\n+clock_granularity_us\r\n:1000\r\n+max_lease_ms\r\n:60000\r\n"
    )
}

struct Conversation {
    greeting: String,
    token: Option<String>,
    script: Script,
    heard: Sender<Option<String>>,
}

impl Conversation {
    fn run(mut self, mut stream: impl Read + Write) {
        let (mut inbox, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            while let Some((request, len)) = Request::parse(&inbox).expect("well formed") {
                let text = |arg: &&[u8]| String::from_utf8_lossy(arg).into_owned();
                let words: Vec<String> = request.args().iter().map(text).collect();
                inbox.drain(..len);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                match self.answer(&words) {
                    Say::Bytes(bytes) if stream.write_all(&bytes).is_ok() => {}
                    Say::Nothing => {}
                    Say::Bytes(_) | Say::Close => return,
                }
            }
            match stream.read(&mut buffer) {
                Ok(len) if len > 0 => inbox.extend_from_slice(&buffer[..len]),
                _ => {
                    let _nobody_listens = self.heard.send(None);
                    return;
                }
            }
        }
    }

    fn answer(&mut self, request: &[&str]) -> Say {
        match request {
            ["AUTH", token] if self.token.as_deref() == Some(*token) => {
                self.token = None;
                Say::line("+OK\r\n")
            }
            ["AUTH", _] if self.token.is_some() => Say::line("-WRONGPASS no such token\r\n"),
            ["AUTH", _] => Say::line("-ERR this node asks for no password\r\n"),
            _ if self.token.is_some() => Say::line("-NOAUTH a token is needed\r\n"),
            ["HELLO", "3"] => Say::line(&self.greeting),
            ["CLIENT", ..] => Say::line("+OK\r\n"),
            request => {
                let _nobody_listens = self.heard.send(Some(request.join(" ")));
                (self.script)(request)
            }
        }
    }
}
