//! Tells an event loop, or a thread, which requests are worth a poll.
//!
//! The client's thread writes a number and at most one byte to a socket. It never takes the
//! interpreter lock, so that Python code cannot delay a renewal.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;

use crate::owned::Owned;

/// The numbers of requests that are worth a poll, and a file descriptor that is readable when there
/// are some.
#[pyclass(frozen, module = "paxoslease._native")]
pub(crate) struct Ready {
    queue: Owned<Arc<Queue>>,
}

struct Queue {
    ids: Mutex<Vec<u64>>,
    reader: UnixStream,
    writer: UnixStream,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: u64) {
        let mut ids = self.lock();
        ids.push(id);
        let is_first = ids.len() == 1;
        drop(ids);
        if is_first {
            // A full socket is readable, which is all that the byte is for.
            let _full = (&self.writer).write(&[0]);
        }
    }

    fn take(&self) -> std::io::Result<Vec<u64>> {
        // The bytes first: a number that comes meanwhile is taken, or has a byte of its own.
        let mut bytes = [0; 64];
        match (&self.reader).read(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(std::mem::take(&mut *self.lock())),
        }
    }
}

/// Wakes one request.
struct WakeOne {
    id: u64,
    queue: Arc<Queue>,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.push(self.id);
    }
}

impl Ready {
    pub(crate) fn waker(&self, id: u64) -> PyResult<Waker> {
        Ok(Waker::from(Arc::new(WakeOne { id, queue: Arc::clone(self.queue.get()?) })))
    }
}

#[pymethods]
impl Ready {
    /// With `blocking`, `take` waits until there is a number.
    #[new]
    #[pyo3(signature = (*, blocking=false))]
    fn new(blocking: bool) -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(!blocking)?;
        writer.set_nonblocking(true)?;
        let queue = Queue { ids: Mutex::default(), reader, writer };
        Ok(Self { queue: Owned::new(Arc::new(queue)) })
    }

    /// The file descriptor for an event loop.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.queue.get()?.reader.as_raw_fd())
    }

    /// Adds a number.
    fn push(&self, id: u64) -> PyResult<()> {
        self.queue.get()?.push(id);
        Ok(())
    }

    /// Takes all numbers. One may come twice, or for a request that is over.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let queue = self.queue.get()?;
        Ok(py.detach(|| queue.take())?)
    }
}
