//! A connection whose client has to read at a minimum rate. A client that reads nothing, or a byte
//! now and then, would keep its connection and a page in memory for ever. Sending has other bounds.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connection::limited;

/// Bytes that the client has to take within `patience`, while there is more to send.
const TAKEN_MIN: usize = 64 * 1024;

pub(super) struct Patient {
    /// Shared with [`super::connection::Connection`], which looks for the end.
    stream: Arc<TcpStream>,
    patience: Duration,
    /// Open while the socket has no room for all bytes.
    window: Option<Window>,
}

/// A span in which the client has to take [`TAKEN_MIN`] bytes.
struct Window {
    over: Pin<Box<Sleep>>,
    taken: usize,
}

impl Patient {
    pub(super) const fn new(stream: Arc<TcpStream>, patience: Duration) -> Self {
        Self { stream, patience, window: None }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        send: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let sent = loop {
            match self.stream.poll_write_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
            match send(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break Poll::Ready(sent),
            }
        };
        self.unless_too_slow(context, sent)
    }

    fn unless_too_slow(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(sent) = sent {
            let len = *sent.as_ref().unwrap_or(&0);
            self.window = self.window.take().and_then(|window| window.took(len));
            return Poll::Ready(sent);
        }
        let patience = self.patience;
        let window = self.window.get_or_insert_with(|| Window::new(patience));
        ready!(window.over.as_mut().poll(context));
        limited("slow_reader");
        let problem = format!(
            "the other end took {} bytes, less than {TAKEN_MIN}, in {patience:?}",
            window.taken
        );
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
    }
}

impl Window {
    fn new(patience: Duration) -> Self {
        Self { over: Box::pin(sleep(patience)), taken: 0 }
    }

    /// `None` once it took enough. The next time there is no room, another window begins.
    fn took(mut self, len: usize) -> Option<Self> {
        self.taken += len;
        (self.taken < TAKEN_MIN).then_some(self)
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// All bytes found room.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.window = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.stream).shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            shut => shut,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::TcpListener;

    use super::*;

    /// How a response ends of which `each` bytes find room at every poll, after some polls.
    fn send(each: usize) -> Option<io::ErrorKind> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let stream = TcpStream::connect(address).await.expect("connects");
            let mut patient = Patient::new(Arc::new(stream), Duration::from_millis(1));
            let mut looks = 0;
            poll_fn(|context| {
                looks += 1;
                let sent = patient.unless_too_slow(context, Poll::Ready(Ok(each)));
                assert!(sent.is_ready());
                match patient.unless_too_slow(context, Poll::Pending) {
                    Poll::Ready(sent) => Poll::Ready(sent.err().map(|error| error.kind())),
                    // The window woke the task, and did not end the response.
                    Poll::Pending if looks > 9 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        })
    }

    #[test]
    fn a_byte_now_and_then_does_not_keep_a_connection() {
        assert_eq!(send(1), Some(io::ErrorKind::TimedOut));
        assert_eq!(send(TAKEN_MIN / 4), Some(io::ErrorKind::TimedOut));
        assert_eq!(send(TAKEN_MIN), None);
    }
}
