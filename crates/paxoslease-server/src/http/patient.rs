//! A connection whose other end has to take what it is sent: one that takes nothing for long, a
//! watcher that never reads for example, would keep its seat for ever. Reading has its own bounds.

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

use super::guest::limited;

pub(super) struct Patient {
    /// Shared with whoever looks if the other end is still there.
    stream: Arc<TcpStream>,
    patience: Duration,
    /// Runs while there is something to send and no room for any of it.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(super) const fn new(stream: Arc<TcpStream>, patience: Duration) -> Self {
        Self { stream, patience, blocked: None }
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
        self.unless_blocked_for_long(context, sent)
    }

    fn unless_blocked_for_long(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if sent.is_ready() {
            self.blocked = None;
            return sent;
        }
        let patience = self.patience;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(blocked.as_mut().poll(context));
        limited("slow_reader");
        let problem = format!("the other end took nothing for {patience:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.stream).shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            shut => shut,
        })
    }
}
