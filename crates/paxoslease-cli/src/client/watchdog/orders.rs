//! What `lock` and its watchdog say to each other: frames of nine bytes over a pair of sockets.
//!
//! Nobody else speaks it, and both ends are the same binary; a frame that makes no sense is a bug
//! and ends the conversation. There is no good-bye: before the command has ended, a channel that
//! closes means the worst, and afterwards nothing. The first frame carries the stdin of the command
//! along, since the watchdog's own is this very socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};

const LEN: usize = 9;

/// A frame: what it is, and a number.
pub(crate) trait Frame: Sized {
    fn encode(self) -> (u8, u64);
    fn decode(kind: u8, number: u64) -> Option<Self>;
}

/// From the holder of the lease to the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The lease is held until then, by the clock that counts sleep.
    Until(Duration),
    /// The group gets this signal.
    Pass(i32),
    /// The lease is lost before its time.
    Lost,
}

/// From the watchdog to the holder of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// The command runs; its process and group have this id.
    Started(i32),
    /// It cannot be run: the system's error code.
    NotStarted(i32),
    /// The terminal or somebody stopped it by this signal.
    Stopped(i32),
    /// Its time is up: it has been told to end.
    Ending,
    /// It runs as somebody else, and cannot be signalled.
    Untouchable,
    /// It ended by itself or was ended, with this exit code as shells count them.
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

/// Says something. An end that does not listen must not hold up the other: there is room for
/// hundreds of frames, and who is that far behind has stopped.
pub(crate) fn say(channel: &UnixStream, what: impl Frame) -> io::Result<()> {
    let sent = send(channel, &bytes(what), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == LEN { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Says the first thing, and hands a file over with it.
pub(crate) fn say_with(channel: &UnixStream, what: Order, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    let fits = rights.push(SendAncillaryMessage::ScmRights(&files));
    assert!(fits, "there is space for one");
    sendmsg(channel, &[IoSlice::new(&bytes(what))], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Hears the first thing, and takes the file.
pub(crate) fn hear_with(channel: &UnixStream) -> io::Result<(Order, OwnedFd)> {
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

/// Hears the next thing; `None` once the other end is gone. Blocks within a frame at most for as
/// long as the other end takes to send its nine bytes, which is in one go.
pub(crate) fn hear<F: Frame>(mut channel: &UnixStream) -> io::Result<Option<F>> {
    let mut buffer = [0; LEN];
    match channel.read_exact(&mut buffer) {
        Ok(()) => frame(buffer).map(Some),
        // Whoever is gone with something unread leaves a reset behind.
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
    fn everything_said_is_heard_in_order() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (given, mut kept) = UnixStream::pair().expect("a pair");
        let until = Order::Until(Duration::from_nanos(u64::MAX));
        say_with(&ours, until, given.as_fd()).expect("sent");
        for order in [Order::Pass(15), Order::Lost] {
            say(&ours, order).expect("sent");
        }
        drop((ours, given));
        let (order, file) = hear_with(&theirs).expect("heard");
        assert_eq!(order, until);
        for order in [Order::Pass(15), Order::Lost] {
            assert_eq!(hear(&theirs).expect("heard"), Some(order));
        }
        assert_eq!(hear::<Order>(&theirs).expect("gone"), None);
        drop(file);
        assert_eq!(kept.read(&mut [0]).expect("it was the only one left"), 0);
    }

    #[test]
    fn reports_are_heard_as_they_were_said() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        for report in [
            Report::Started(i32::MAX),
            Report::NotStarted(2),
            Report::Stopped(20),
            Report::Ending,
            Report::Ended(255),
            Report::Untouchable,
        ] {
            say(&ours, report).expect("sent");
            assert_eq!(hear(&theirs).expect("heard"), Some(report));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(frame::<Order>([9; LEN]).is_err());
        assert!(frame::<Report>([0; LEN]).is_err());
        assert!(frame::<Report>([5, 255, 255, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
