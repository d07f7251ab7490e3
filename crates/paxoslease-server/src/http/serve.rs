//! The loop that accepts connections, and how it ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use metrics::{counter, gauge};
use paxoslease_node::Node;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch as signal};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;
use tower::util::BoxCloneService;

use super::connection::{Connection, limited};
use super::patient::Patient;
use super::refusal::Refusal;
use super::router::{count, join_name, router};
use super::{App, Bounds, rebinding};
use crate::Gate;
use crate::metrics::Metrics;

/// The longest head of a request, in bytes: a name of 512 bytes, percent-encoded, and plenty.
const HEAD_MAX: usize = 32 << 10;
/// Connections over the limit that get an error at a time; others are closed without one.
const TURNED_AWAY_MAX: usize = 64;
/// How long one of these may take to send its request.
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long requests may take to finish when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// A client that vanished without closing its connection is noticed after about this long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// After the system refused a connection, for example for lack of descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Serves a node on `listener` until `shutdown` completes; then lets requests finish.
pub(super) async fn run(
    listener: TcpListener,
    node: Node,
    gate: Gate,
    metrics: Metrics,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = signal::channel(false);
    // An unknown address may be any.
    let is_loopback = listener.local_addr().map_or(true, rebinding::is_possible);
    let app = App {
        remote: node.remote(),
        may_be_rebound: is_loopback && node.tls_for_clients().is_none(),
        node,
        metrics,
        gate,
        notices: Arc::default(),
        body_timeout: bounds.body_timeout,
        watchers: Arc::new(Semaphore::new(bounds.watchers as usize)),
        stopping,
    };
    let acceptor = ConnectionAcceptor {
        router: router(app.clone()),
        app,
        seats: Arc::new(Semaphore::new(bounds.connections as usize)),
        over_limit: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        bounds,
        leaving: GracefulShutdown::new(),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => acceptor.accept(stream, from),
                Err(error) => acceptor.rest_after(&error).await,
            },
        }
    }
    drop(listener);
    // If all connections are closed, nothing receives this.
    let _unread = stop.send(true);
    if tokio::time::timeout(GRACE, acceptor.leaving.shutdown()).await.is_err() {
        tracing::warn!("HTTP connections were cut off: they did not finish within {GRACE:?}");
    }
}

/// Accepts connections, as many as there are seats.
struct ConnectionAcceptor {
    app: App,
    router: Router,
    seats: Arc<Semaphore>,
    /// For connections over the limit, which only get an error.
    over_limit: Arc<Semaphore>,
    bounds: Bounds,
    leaving: GracefulShutdown,
}

impl ConnectionAcceptor {
    /// Waits after an error that is not about one connection, since it would come again at once.
    async fn rest_after(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
        let passing = [ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted];
        if !passing.contains(&error.kind()) {
            if let Some(count) = self.app.notices.again(&self.app.node) {
                tracing::warn!(%error, count, "HTTP connections could not be accepted");
            }
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
    }

    fn accept(&self, stream: TcpStream, from: SocketAddr) {
        if let Err(error) = prepare(&stream) {
            // The client is gone already, or its connection is slower than it could be.
            tracing::debug!(%error, %from, "cannot set options of a connection");
        }
        let stream = Arc::new(stream);
        if let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() {
            let connection = Connection::new(&stream, from, &self.bounds);
            let service = self.router.clone().map_request(move |request: Request<Incoming>| {
                let mut request = join_name(request).map(axum::body::Body::new);
                request.extensions_mut().insert(connection.clone());
                request
            });
            let (service, seat) = (service.boxed_clone(), Seat::new(seat));
            return self.serve(stream, from, service, self.bounds.head_timeout, seat);
        }
        limited("http_connections");
        if let Ok(step) = Arc::clone(&self.over_limit).try_acquire_owned() {
            let service = tower::service_fn(turn_away).boxed_clone();
            self.serve(stream, from, service, TURNED_AWAY_TIMEOUT, step);
        }
    }

    /// `seat` is kept for as long as the connection is.
    fn serve(
        &self,
        stream: Arc<TcpStream>,
        from: SocketAddr,
        service: Service,
        head_timeout: Duration,
        seat: impl Send + 'static,
    ) {
        let tls = self.app.node.tls_for_clients();
        let talk = Talk { head_timeout, leaving: self.leaving.watcher() };
        let (app, patience) = (self.app.clone(), self.bounds.write_timeout);
        tokio::spawn(async move {
            let _seat = seat;
            let Some(tls) = tls else {
                return talk.over(Patient::new(stream, patience), service).await;
            };
            let greeted = async {
                if !is_tls(&stream).await? {
                    return Ok::<_, io::Error>(None);
                }
                let stream = Patient::new(Arc::clone(&stream), patience);
                TlsAcceptor::from(tls).accept(stream).await.map(Some)
            };
            let problem = match tokio::time::timeout(head_timeout, greeted).await {
                Ok(Ok(Some(stream))) => return talk.over(stream, service).await,
                Ok(Ok(None)) => {
                    let talk = Talk { head_timeout: TURNED_AWAY_TIMEOUT, ..talk };
                    let stream = Patient::new(stream, TURNED_AWAY_TIMEOUT);
                    talk.over(stream, tower::service_fn(not_tls).boxed_clone()).await;
                    "it does not use TLS, which this port requires".to_owned()
                }
                // A client that only tests whether the port is open was not refused.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("its TLS handshake took more than {head_timeout:?}"),
            };
            counter!("paxoslease_refused_total", "reason" => "tls").increment(1);
            if let Some(count) = app.notices.again(&app.node) {
                tracing::warn!(%from, count, "HTTP clients were refused, the last because {problem}");
            }
        });
    }
}

/// Answers the requests of a connection.
type Service = BoxCloneService<Request<Incoming>, Response, Infallible>;

/// Whether a client begins with a TLS record of a handshake.
async fn is_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first == [0x16]),
    }
}

/// How to speak HTTP on a connection.
struct Talk {
    head_timeout: Duration,
    leaving: Watcher,
}

impl Talk {
    async fn over(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, service: Service) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        if let Err(error) = self.leaving.watch(connection).await {
            if error.is_parse() {
                limited("framing");
            } else if error.is_timeout() {
                limited("http_idle");
            }
            tracing::debug!(%error, "an HTTP connection broke");
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 6);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Counts a connection while it is open.
struct Seat(#[expect(dead_code, reason = "given back when dropped")] OwnedSemaphorePermit);

impl Seat {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        gauge!("paxoslease_http_connections").increment(1.0);
        Self(permit)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        gauge!("paxoslease_http_connections").decrement(1.0);
    }
}

async fn turn_away(_: Request<Incoming>) -> Result<Response, Infallible> {
    let problem = "this node has as many HTTP connections as limits.connections allows".to_owned();
    Ok(last_word(Refusal::Busy(problem)))
}

async fn not_tls(_: Request<Incoming>) -> Result<Response, Infallible> {
    Ok(last_word(Refusal::NotTls))
}

fn last_word(refusal: Refusal) -> Response {
    let mut response = refusal.into_response();
    count("none", response.status());
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
