//! A request under way, which a thread waits for or an event loop polls.

use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PySystemExit, PyTimeoutError};
use pyo3::prelude::*;

use crate::errors::{Failure, busy};
use crate::outcome::{Outcome, Success};
use crate::owned::Owned;
use crate::ready::Ready;

/// How often a waiting main thread looks for signals such as Ctrl-C. Only the main thread runs
/// Python's signal handlers.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The thread that ends the interpreter.
static EXITING: OnceLock<ThreadId> = OnceLock::new();

/// Notes that this thread ends the interpreter and closes all clients. Other threads, which can
/// only be daemons then, leave their waits by SystemExit: it ends a thread without a traceback.
#[pyfunction]
pub(crate) fn begin_exit() {
    let _already = EXITING.set(thread::current().id());
}

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A request under way. Dropping it cancels the request.
#[pyclass(frozen, module = "paxoslease._native")]
pub(crate) struct Pending {
    work: Owned<Mutex<Option<Work>>>,
}

impl Pending {
    pub(crate) fn new<T, E>(
        work: impl Future<Output = Result<T, E>> + Send + 'static,
        success: impl FnOnce(T) -> Success + Send + 'static,
    ) -> Self
    where
        Failure: From<E>,
    {
        let work = async move { work.await.map(success).map_err(Failure::from) };
        Self { work: Owned::new(Mutex::new(Some(Box::pin(work)))) }
    }

    fn take(&self) -> PyResult<Work> {
        self.work.get()?.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(busy)
    }

    fn put(&self, work: Work) -> PyResult<()> {
        *self.work.get()?.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        Ok(())
    }
}

#[pymethods]
impl Pending {
    /// Blocks this thread, without the interpreter lock, until the request is over. After `timeout`
    /// seconds, raises TimeoutError and leaves the request under way. A signal handler that raises
    /// cancels the request.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let mut work = self.take()?;
        let deadline = match timeout {
            None => None,
            Some(timeout) => {
                let span = Duration::try_from_secs_f64(timeout.max(0.0)).ok();
                span.and_then(|span| now().checked_add(span))
            }
        };
        let slice = checks_signals(py)?.then_some(SIGNAL_CHECK);
        loop {
            match py.detach(|| wait_for(&mut work, slice, deadline)) {
                Some(Err(_)) if is_ended_by_another_thread() => {
                    return Err(PySystemExit::new_err("the interpreter ends"));
                }
                Some(outcome) => return finish(py, outcome),
                None if deadline.is_some_and(|deadline| deadline <= now()) => {
                    self.put(work)?;
                    return Err(PyTimeoutError::new_err("not within the timeout"));
                }
                None => py.check_signals()?,
            }
        }
    }

    /// Polls once. Returns None if the request is still under way: `ready` gets the number `id`
    /// when it is worth another poll. Returns a tuple with the result when the request is over.
    fn poll(&self, py: Python<'_>, ready: &Ready, id: u64) -> PyResult<Option<(Py<PyAny>,)>> {
        let mut work = self.take()?;
        let waker = ready.waker(id)?;
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => finish(py, outcome).map(|result| Some((result,))),
            Poll::Pending => self.put(work).map(|()| None),
        }
    }

    /// Cancels the request, unless it is over or another thread waits for it.
    fn cancel(&self) -> PyResult<()> {
        drop(self.take().ok());
        Ok(())
    }
}

fn finish(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(success) => success.into_python(py),
        Err(failure) => Err(failure.raise(py)),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Waits on this thread for one slice, or until the deadline. Without both, until the end.
fn wait_for(
    work: &mut Work,
    slice: Option<Duration>,
    deadline: Option<Instant>,
) -> Option<Outcome> {
    let slice_ends_at = slice.map(|slice| now() + slice);
    let ends_at = slice_ends_at.into_iter().chain(deadline).min();
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(outcome) = work.as_mut().poll(&mut context) {
                return Some(outcome);
            }
            match ends_at {
                None => thread::park(),
                Some(at) => match at.saturating_duration_since(now()) {
                    Duration::ZERO => return None,
                    span => thread::park_timeout(span),
                },
            }
        }
    })
}

fn is_ended_by_another_thread() -> bool {
    EXITING.get().is_some_and(|exiting| *exiting != thread::current().id())
}

/// Whether this thread is the main thread of the interpreter. In a forked child, that is the thread
/// that forked.
fn checks_signals(py: Python<'_>) -> PyResult<bool> {
    static MAIN: Mutex<Option<(u32, ThreadId)>> = Mutex::new(None);
    let (process, this) = (process::id(), thread::current().id());
    // Nothing that may fork is called while this lock is held.
    let known = *MAIN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, main)) = known.filter(|(of, _)| *of == process) {
        return Ok(main == this);
    }
    let threading = py.import("threading")?;
    let is_main =
        threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    if is_main {
        *MAIN.lock().unwrap_or_else(PoisonError::into_inner) = Some((process, this));
    }
    Ok(is_main)
}

#[expect(clippy::disallowed_methods, reason = "the end of a wait, no decision about a lease")]
fn now() -> Instant {
    Instant::now()
}
