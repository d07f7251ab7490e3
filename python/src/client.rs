//! The client, its requests, and the streams of a client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use paxoslease_client::{Acquire, Client, Election, Tls};
use pyo3::prelude::*;

use crate::errors::{Failure, span};
use crate::outcome::{Outcome, Success};
use crate::owned::Owned;
use crate::pending::Pending;

/// A client of a cell. Every request is a `Pending`.
#[pyclass(frozen, weakref, module = "paxoslease._native")]
pub(crate) struct NativeClient {
    client: Owned<Client>,
}

/// Certificates as a path, or as PEM.
#[derive(FromPyObject)]
enum Source {
    #[pyo3(transparent, annotation = "bytes")]
    Pem(Vec<u8>),
    #[pyo3(transparent, annotation = "str | os.PathLike")]
    File(std::path::PathBuf),
}

fn tls(ca: &Source, identity: Option<(Source, Source)>) -> Result<Tls, Failure> {
    let tls = match ca {
        Source::Pem(pem) => Tls::from_ca_pem(pem)?,
        Source::File(path) => Tls::from_ca_file(path)?,
    };
    match identity {
        None => Ok(tls),
        Some((Source::Pem(cert), Source::Pem(key))) => Ok(tls.with_identity_pem(&cert, &key)?),
        Some((Source::File(cert), Source::File(key))) => Ok(tls.with_identity_files(cert, key)?),
        Some(_) => Err(Failure::invalid("`cert` and `key` must both be files, or both be PEM")),
    }
}

/// What an acquire asks for. It owns what [`Acquire`] borrows.
struct Options {
    client: Client,
    name: String,
    ttl: Duration,
    wait: Duration,
    holder: Option<String>,
    permits: Option<u64>,
    /// Whether it lasts for the ttl on disk, without renewals.
    durable: bool,
}

impl Options {
    fn new(
        client: &Client,
        name: String,
        ttl: f64,
        wait: Option<f64>,
        holder: Option<String>,
        permits: Option<i64>,
        durable: bool,
    ) -> Result<Self, Failure> {
        let ttl = span(if durable { "duration" } else { "ttl" }, ttl)?;
        let client = client.clone();
        // A number that is not one of permits is refused by the client, as one that is too large.
        let permits = permits.map(|permits| u64::try_from(permits).unwrap_or(0));
        let wait = wait.map_or(Ok(Duration::MAX), |wait| span("timeout", wait))?;
        Ok(Self { client, name, ttl, wait, holder, permits, durable })
    }

    fn acquire(&self) -> Acquire<'_> {
        let mut acquire = self.client.acquire(&self.name, self.ttl).wait(self.wait);
        if let Some(holder) = &self.holder {
            acquire = acquire.holder(holder);
        }
        if let Some(permits) = self.permits {
            acquire = acquire.permits(permits);
        }
        if self.durable {
            acquire = acquire.durable(self.ttl);
        }
        acquire
    }
}

#[pymethods]
impl NativeClient {
    #[new]
    #[pyo3(signature = (
        endpoints, *, token, ca, identity, server_name, token_in_clear, name, request_timeout,
        connect_timeout
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        endpoints: &str,
        token: Option<String>,
        ca: Option<Source>,
        identity: Option<(Source, Source)>,
        server_name: Option<String>,
        token_in_clear: bool,
        name: Option<String>,
        request_timeout: f64,
        connect_timeout: f64,
    ) -> PyResult<Self> {
        let build = || {
            let mut builder = Client::builder()
                .endpoints(endpoints)
                .request_timeout(span("request_timeout", request_timeout)?)
                .connect_timeout(span("connect_timeout", connect_timeout)?);
            if let Some(ca) = &ca {
                let mut tls = tls(ca, identity)?;
                if let Some(name) = server_name {
                    tls = tls.with_server_name(&name)?;
                }
                builder = builder.tls(tls);
            } else if identity.is_some() || server_name.is_some() {
                return Err(Failure::invalid("`cert`, `key` and `server_name` need `ca`"));
            }
            if let Some(token) = token {
                builder = builder.token(token);
            }
            if token_in_clear {
                builder = builder.token_in_clear();
            }
            if let Some(name) = name {
                builder = builder.name(name);
            }
            Ok(builder.build()?)
        };
        let client = build().map_err(|failure| failure.raise(py))?;
        Ok(Self { client: Owned::new(client) })
    }

    #[getter]
    fn endpoints(&self) -> PyResult<Vec<String>> {
        Ok(self.client.get()?.endpoints().to_vec())
    }

    #[getter]
    fn default_holder(&self) -> PyResult<String> {
        Ok(self.client.get()?.default_holder().to_owned())
    }

    /// Acquires a lease. `wait` is in seconds; None waits for ever.
    #[pyo3(signature = (name, ttl, wait, holder, permits, durable))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn acquire(
        &self,
        py: Python<'_>,
        name: String,
        ttl: f64,
        wait: Option<f64>,
        holder: Option<String>,
        permits: Option<i64>,
        durable: bool,
    ) -> PyResult<Pending> {
        let options = Options::new(self.client.get()?, name, ttl, wait, holder, permits, durable);
        let options = options.map_err(|failure| failure.raise(py))?;
        Ok(Pending::new(async move { options.acquire().await }, Success::Lease))
    }

    /// Like `acquire`, for a lease that is not renewed.
    #[pyo3(signature = (name, ttl, wait, holder, permits, durable))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn acquire_detached(
        &self,
        py: Python<'_>,
        name: String,
        ttl: f64,
        wait: Option<f64>,
        holder: Option<String>,
        permits: Option<i64>,
        durable: bool,
    ) -> PyResult<Pending> {
        let options = Options::new(self.client.get()?, name, ttl, wait, holder, permits, durable);
        let options = options.map_err(|failure| failure.raise(py))?;
        Ok(Pending::new(async move { options.acquire().detached().await }, Success::Grant))
    }

    fn renew(&self, py: Python<'_>, name: String, fence: u64, ttl: f64) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        let ttl = span("ttl", ttl).map_err(|failure| failure.raise(py))?;
        let work = async move { client.renew(&name, fence, ttl).await };
        Ok(Pending::new(work, Success::Grant))
    }

    fn keep(&self, py: Python<'_>, name: String, fence: u64, lasts: f64) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        let lasts = span("duration", lasts).map_err(|failure| failure.raise(py))?;
        let work = async move { client.keep(&name, fence, lasts).await };
        Ok(Pending::new(work, Success::Grant))
    }

    fn release(&self, name: String, fence: u64, force: bool, durable: bool) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        let work = async move {
            match force {
                true => client.force_release(&name, fence).await,
                false if durable => client.release_durable(&name, fence).await,
                false => client.release(&name, fence).await,
            }
        };
        Ok(Pending::new(work, |()| Success::Done))
    }

    fn get(&self, name: String) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        Ok(Pending::new(async move { client.get(&name).await }, Success::Seen))
    }

    fn list(&self, prefix: &str) -> PyResult<Pending> {
        let list = self.client.get()?.list(prefix);
        Ok(Pending::new(list.all(), Success::Listed))
    }

    fn scan(&self, prefix: &str, page_len: u32) -> PyResult<NativeStream> {
        let list = self.client.get()?.list(prefix).page_len(page_len);
        Ok(NativeStream::new(list, |seen| Ok(Success::Seen(Some(seen?)))))
    }

    fn watch(&self, prefix: &str) -> PyResult<NativeStream> {
        let watch = self.client.get()?.watch(prefix);
        Ok(NativeStream::new(watch, |change| Ok(Success::Changed(change))))
    }

    fn observe(&self, name: &str) -> PyResult<NativeStream> {
        let observer = Election::new(self.client.get()?, name).observe();
        Ok(NativeStream::new(observer, |leader| Ok(Success::Led(leader))))
    }

    #[pyo3(signature = (endpoint))]
    fn status(&self, endpoint: Option<String>) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        let work = async move {
            match endpoint {
                Some(endpoint) => client.status_of(&endpoint).await,
                None => client.status().await,
            }
        };
        Ok(Pending::new(work, |status| Success::Status(Box::new(status))))
    }

    fn shutdown(&self) -> PyResult<Pending> {
        let client = self.client.get()?.clone();
        let work = async move {
            client.shutdown().await;
            Ok::<_, Failure>(())
        };
        Ok(Pending::new(work, |()| Success::Done))
    }
}

/// Items that come one at a time: the changes of a watch, the leaders of an election, the leases of
/// a list.
#[pyclass(frozen, module = "paxoslease._native")]
pub(crate) struct NativeStream {
    poll: Owned<Arc<Mutex<PollItem>>>,
}

type PollItem = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Outcome>> + Send>;

impl NativeStream {
    fn new<S, T>(mut stream: S, item: fn(T) -> Outcome) -> Self
    where
        S: Stream<Item = T> + Unpin + Send + 'static,
        T: 'static,
    {
        let poll: PollItem = Box::new(move |context| {
            Pin::new(&mut stream).poll_next(context).map(|next| next.map(item))
        });
        Self { poll: Owned::new(Arc::new(Mutex::new(poll))) }
    }
}

#[pymethods]
impl NativeStream {
    /// The next item. Raises EndOfStream after the last. One caller at a time may wait for it.
    fn next(&self) -> PyResult<Pending> {
        let poll = Arc::clone(self.poll.get()?);
        let next = poll_fn(move |context| {
            let mut poll = poll.lock().unwrap_or_else(PoisonError::into_inner);
            poll(context).map(|next| next.unwrap_or(Ok(Success::End)))
        });
        Ok(Pending::new(next, std::convert::identity))
    }
}
