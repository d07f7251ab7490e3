//! The messages between `lock` and its watchdog: frames of nine bytes over a pair of sockets.
//!
//! Both ends are the same binary, so an invalid frame is a bug and ends the connection. There is no
//! closing message: before the command has ended, a closed channel means that the other process
//! died; afterwards it means nothing. The first frame carries the stdin of the command, because the
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

const LEN: usize = 9;

/// A frame: a kind and a number.
pub(crate) trait Frame: Sized {
    fn encode(self) -> (u8, u64);
    fn decode(kind: u8, number: u64) -> Option<Self>;
}

/// From the holder of the lease to the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The lease is held until then, on the clock for leases.
    Until(Duration),
    /// The group gets this signal.
    Pass(i32),
    /// The lease was lost early.
    Lost,
}

/// From the watchdog to the holder of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

impl Frame for Order {
    fn encode(self) -> (u8, u64) {
        match self {
            Self::Until(at) => (1, u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)),
            Self::Pass(signal) => (2, u64::from(signal.unsigned_abs())),
            Self::Lost => (3, 0),
        }
    }

    fn decode(kind: u8, number: u64) -> Option<Self> {
        match kind {
            1 => Some(Self::Until(Duration::from_nanos(number))),
            2 => i32::try_from(number).ok().map(Self::Pass),
            3 => Some(Self::Lost),
            _ => None,
        }
    }
}

impl Frame for Report {
    fn encode(self) -> (u8, u64) {
        match self {
            Self::Started(id) => (1, u64::from(id.unsigned_abs())),
            Self::NotStarted(code) => (2, u64::from(code.unsigned_abs())),
            Self::Stopped(signal) => (3, u64::from(signal.unsigned_abs())),
            Self::Ending => (4, 0),
            Self::Ended(code) => (5, u64::from(code)),
            Self::Untouchable => (6, 0),
        }
    }

    fn decode(kind: u8, number: u64) -> Option<Self> {
        let number = i32::try_from(number).ok()?;
        match kind {
            1 => Some(Self::Started(number)),
            2 => Some(Self::NotStarted(number)),
            3 => Some(Self::Stopped(number)),
            4 => Some(Self::Ending),
            5 => u8::try_from(number).ok().map(Self::Ended),
            6 => Some(Self::Untouchable),
            _ => None,
        }
    }
}

fn bytes(frame: impl Frame) -> [u8; LEN] {
    let (kind, number) = frame.encode();
    let mut bytes = [kind; LEN];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn frame<F: Frame>(bytes: [u8; LEN]) -> io::Result<F> {
    let [kind, number @ ..] = bytes;
    F::decode(kind, u64::from_le_bytes(number)).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Sends a frame without blocking. The channel has room for hundreds of frames, so a process that
/// is further behind was stopped.
pub(crate) fn send(channel: &UnixStream, what: impl Frame) -> io::Result<()> {
    let sent = rustix::net::send(channel, &bytes(what), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == LEN { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Sends the first frame, with a file.
pub(crate) fn send_with_file(
    channel: &UnixStream,
    what: Order,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    let fits = rights.push(SendAncillaryMessage::ScmRights(&files));
    assert!(fits, "there is space for one");
    sendmsg(channel, &[IoSlice::new(&bytes(what))], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the first frame, with the file.
pub(crate) fn receive_with_file(channel: &UnixStream) -> io::Result<(Order, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0; LEN];
    let received = recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut rights,
        RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC,
    )?;
    let file = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match file {
        Some(file) if received.bytes == LEN => Ok((frame(buffer)?, file)),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Receives the next frame; `None` once the other process has ended. Blocks only for the rest of a
/// frame, which the other process sends in one call.
pub(crate) fn receive<F: Frame>(mut channel: &UnixStream) -> io::Result<Option<F>> {
    let mut buffer = [0; LEN];
    match channel.read_exact(&mut buffer) {
        Ok(()) => frame(buffer).map(Some),
        // A process that ends with unread data causes a reset.
        Err(error)
            if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn frames_arrive_in_order() {
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

    #[test]
    fn every_report_decodes_to_itself() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        for report in [
            Report::Started(i32::MAX),
            Report::NotStarted(2),
            Report::Stopped(20),
            Report::Ending,
            Report::Ended(255),
            Report::Untouchable,
        ] {
            send(&ours, report).expect("sent");
            assert_eq!(receive(&theirs).expect("received"), Some(report));
        }
    }

    #[test]
    fn an_invalid_frame_is_refused() {
        assert!(frame::<Order>([9; LEN]).is_err());
        assert!(frame::<Report>([0; LEN]).is_err());
        assert!(frame::<Report>([5, 255, 255, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
