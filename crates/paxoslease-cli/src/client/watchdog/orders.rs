//! The messages between `lock` and its watchdog: lines of JSON over a pair of sockets.
//!
//! Both ends are the same binary, so an invalid line is a bug and ends the connection. There is no
//! closing message: before the command has ended, a closed channel means that the other process
//! died; afterwards it means nothing. The first line carries the stdin of the command, because the
//! watchdog's own stdin is this socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// From the holder of the lease to the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The lease is held until then, on the clock for leases.
    Until(Duration),
    /// The group gets this signal.
    Pass(i32),
    /// The lease was lost early.
    Lost,
}

/// From the watchdog to the holder of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The command runs; its process and its group have this id.
    Started(i32),
    /// The command cannot be run: the error code of the system.
    NotStarted(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The time is up: the command was asked to end.
    Ending,
    /// The command runs as another user, and cannot be signalled.
    Untouchable,
    /// The command has ended with this exit code, as shells count.
    Ended(u8),
}

fn line(message: impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(&message).expect("plain data");
    line.push(b'\n');
    line
}

/// Sends a message without blocking. The channel has room for hundreds of them, so a process that
/// is further behind was stopped.
pub(crate) fn send(channel: &UnixStream, message: impl Serialize) -> io::Result<()> {
    let line = line(message);
    let sent = rustix::net::send(channel, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Sends the first message, with a file.
pub(crate) fn send_with_file(
    channel: &UnixStream,
    first: Order,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    let fits = rights.push(SendAncillaryMessage::ScmRights(&files));
    assert!(fits, "there is space for one");
    sendmsg(channel, &[IoSlice::new(&line(first))], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the first message, with the file, which comes with the first byte.
pub(crate) fn receive_with_file(channel: &UnixStream) -> io::Result<(Order, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(channel, into, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let file = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let missing = || io::Error::from(ErrorKind::UnexpectedEof);
    let file = file.ok_or_else(missing)?;
    Ok((receive_rest(channel, byte.to_vec())?.ok_or_else(missing)?, file))
}

/// Receives the next message; `None` once the other process has ended. Blocks only for the rest of
/// a line, which the other process sends in one call.
pub(crate) fn receive<M: DeserializeOwned>(channel: &UnixStream) -> io::Result<Option<M>> {
    receive_rest(channel, Vec::new())
}

#[expect(clippy::unbuffered_bytes, reason = "a line is short, and what follows it must stay")]
fn receive_rest<M: DeserializeOwned>(
    channel: &UnixStream,
    mut line: Vec<u8>,
) -> io::Result<Option<M>> {
    for byte in channel.bytes() {
        match byte {
            Ok(b'\n') => return Ok(Some(serde_json::from_slice(&line)?)),
            Ok(byte) => line.push(byte),
            // A process that ends with unread data causes a reset.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn lines_arrive_in_order() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (given, mut kept) = UnixStream::pair().expect("a pair");
        let until = Order::Until(Duration::from_nanos(u64::MAX));
        send_with_file(&ours, until, given.as_fd()).expect("sent");
        for order in [Order::Pass(15), Order::Lost] {
            send(&ours, order).expect("sent");
        }
        drop((ours, given));
        let (order, file) = receive_with_file(&theirs).expect("received");
        assert_eq!(order, until);
        for order in [Order::Pass(15), Order::Lost] {
            assert_eq!(receive(&theirs).expect("received"), Some(order));
        }
        assert_eq!(receive::<Order>(&theirs).expect("gone"), None);
        drop(file);
        assert_eq!(kept.read(&mut [0]).expect("it was the only one left"), 0);
    }
}
