//! The client of a connection, and how fast it may ask.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::Response;
use metrics::counter;
use paxoslease_node::Node;
use paxoslease_node::front::{Instant, LogThrottle};
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

use super::Bounds;
use super::refusal::Refusal;
use crate::limits::RateLimiter;

/// Requests without a valid token on one connection, where tokens are required. The last of them
/// closes it, so that another client may connect.
pub(super) const UNAUTHORIZED_MAX: u32 = 4;
/// Unread bytes that a client may send while its acquire waits. The end of a connection comes after
/// all bytes, so a full buffer of the system would hide it.
const AHEAD_MAX: usize = 16 << 10;
/// How often to look for the end behind unread bytes.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The client of one connection. Clones are the same client.
#[derive(Clone)]
pub(super) struct Connection {
    stream: Arc<TcpStream>,
    pub(super) address: SocketAddr,
    acquires: Option<(u32, Arc<Mutex<RateLimiter>>)>,
    unauthorized: Arc<AtomicU32>,
}

impl Connection {
    pub(super) fn new(stream: &Arc<TcpStream>, address: SocketAddr, bounds: &Bounds) -> Self {
        let limiter = |rate| (rate, Arc::new(Mutex::new(RateLimiter::new(rate))));
        let acquires = bounds.acquires_per_second.map(limiter);
        let stream = Arc::clone(stream);
        Self { stream, address, acquires, unauthorized: Arc::default() }
    }

    /// Passes a response to a client without a valid token. One that keeps asking has to connect
    /// again.
    pub(super) fn answered_without_token(&self, mut response: Response) -> Response {
        if self.unauthorized.fetch_add(1, Ordering::Relaxed) + 1 >= UNAUTHORIZED_MAX {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Counts an acquire, if it is not too fast.
    pub(super) fn acquires(&self, now: Instant) -> Result<(), Refusal> {
        let Some((per_second, limiter)) = &self.acquires else { return Ok(()) };
        if limiter.lock().unwrap_or_else(PoisonError::into_inner).admits(now) {
            return Ok(());
        }
        limited("acquires_per_second");
        let problem = format!("more than {per_second} acquires a second on this connection");
        Err(Refusal::Busy(problem))
    }

    /// Completes when the client has left, or has sent so much that its end cannot be noticed. P8:
    /// nothing waits for a client that left. The HTTP library notices the end only if nothing
    /// follows the request.
    pub(super) async fn left(&self) -> Refusal {
        loop {
            // An error means that the runtime has ended.
            let closed = self.stream.ready(Interest::READABLE).await;
            if closed.map_or(true, Ready::is_read_closed) {
                return Refusal::Left;
            }
            match self.ahead() {
                Ok(AHEAD_MAX) => {
                    limited("out_of_sight");
                    return Refusal::OutOfSight;
                }
                Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Refusal::Left,
            }
        }
    }

    /// How many bytes are unread, up to a bound.
    fn ahead(&self) -> io::Result<usize> {
        let mut bytes = [MaybeUninit::uninit(); AHEAD_MAX];
        let peek = || SockRef::from(&*self.stream).peek(&mut bytes);
        self.stream.try_io(Interest::READABLE, peek)
    }
}

/// Limits log lines that any client can cause.
#[derive(Default)]
pub(super) struct Notices(Mutex<LogThrottle>);

impl Notices {
    /// As [`LogThrottle::again`].
    pub(super) fn again(&self, node: &Node) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).again(node.now())
    }
}

/// Counts a request that exceeded a limit.
pub(super) fn limited(limit: &'static str) {
    counter!("paxoslease_limited_total", "limit" => limit).increment(1);
}
