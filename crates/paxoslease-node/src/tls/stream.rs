//! A connection that may or may not be encrypted, for a loop that does not care which.
//!
//! Never blocks, and expects edge-triggered events: read until `WouldBlock`, then `flush`, since a
//! read may have produced handshake bytes, key updates or an alert. Both directions are bounded:
//! what the socket does not take piles up to [`CIPHERTEXT_MAX`] and no further, and no more is
//! read than the caller has room for. Any error but `WouldBlock` is the end of the connection.
//!
//! Deliberately absent: frames, events, deadlines (a stalled handshake is the loop's to give up).

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;

use mio::net::TcpStream;
use paxoslease_core::NodeId;
use rustls::{AlertDescription, CertificateError, Connection, Error};

use super::names::NodeNames;

/// Plaintext that may wait for the handshake, and about as much ciphertext for the socket.
pub(super) const CIPHERTEXT_MAX: usize = 64 * 1024;

/// Two TLS records: rustls alone would ask the system for 4 KiB at a time.
const INBOUND_LEN: usize = 32 * 1024;

/// A connection to a peer or a client.
pub(crate) enum Stream {
    /// Without TLS: straight to the socket.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Reads what has come. `Ok(0)` means closed in good order, `WouldBlock` that there is no more
    /// for now; so does a read that left room in `buf`, except that the end may follow. `spare` is
    /// memory that connections take turns with.
    pub(crate) fn read(&mut self, buf: &mut [u8], spare: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buf),
            Self::Tls(tls) => tls.read(buf, spare),
        }
    }

    /// Takes a prefix of `buf` and says how long it was; `WouldBlock` when it is empty.
    pub(crate) fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(buf),
            Self::Tls(tls) => tls.write(buf),
        }
    }

    /// Pushes what was taken but not yet sent; true when nothing of that is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Whether `flush` has something to push.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.wants_write(),
        }
    }

    /// Whether what is written has to wait for the handshake. The dialer is through before the
    /// acceptor has judged its certificate: only what the acceptor says proves that it was taken.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.is_handshaking(),
        }
    }

    /// Whether the other side may call itself `node`. Without TLS there is no proof to ask for.
    pub(crate) fn peer_is(&self, node: NodeId) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => {
                let OtherEnd::Peer(names) = &tls.other else { return false };
                let certificate = tls.conn.peer_certificates().and_then(<[_]>::first);
                certificate.is_some_and(|certificate| names.is_of(certificate, node))
            }
        }
    }

    /// Says that nothing follows, as far as the socket takes it, so that the other side can tell
    /// a goodbye from a cut. Without TLS closing the socket says it.
    pub(crate) fn close_notify(&mut self) {
        if let Self::Tls(tls) = self {
            tls.conn.send_close_notify();
            // A peer that is gone needs no goodbye.
            let _ = tls.flush();
        }
    }

    /// The socket, to look at.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }

    /// The socket, to register. Its bytes belong to the methods above.
    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &mut tls.tcp,
        }
    }
}

/// Whom a TLS connection is with.
pub(super) enum OtherEnd {
    /// And what the certificates of its cell are valid for.
    Peer(NodeNames),
    Client {
        /// What to say to one that does not speak TLS.
        not_tls: &'static [u8],
        /// Nothing has come yet.
        is_new: bool,
    },
}

/// The first byte of every TLS connection: the kind of its first record.
const HANDSHAKE: u8 = 0x16;

/// One side of a TLS connection and its socket.
pub(crate) struct TlsStream {
    pub(super) conn: Connection,
    tcp: TcpStream,
    other: OtherEnd,
    /// Lent while there is something in it: idle connections are many.
    inbound: Vec<u8>,
    /// The part of `inbound` that rustls has not seen yet.
    unseen: Range<usize>,
}

impl TlsStream {
    pub(super) fn new(mut conn: Connection, tcp: TcpStream, other: OtherEnd) -> Self {
        conn.set_buffer_limit(Some(CIPHERTEXT_MAX));
        Self { conn, tcp, other, inbound: Vec::new(), unseen: 0..0 }
    }

    fn read(&mut self, buf: &mut [u8], spare: &mut Vec<u8>) -> io::Result<usize> {
        if self.unseen.is_empty() {
            self.inbound = std::mem::take(spare);
        }
        let read = self.fill(buf);
        if self.unseen.is_empty() {
            *spare = std::mem::take(&mut self.inbound);
        }
        read
    }

    /// Fills `buf` as far as the socket allows. A peer cannot keep this busy with records that
    /// carry nothing (invariant 7): rustls ends the connection after a few.
    fn fill(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        let mut drained = false;
        loop {
            match self.conn.reader().read(&mut buf[filled..]) {
                // Either `buf` is full or the peer said goodbye.
                Ok(0) => return Ok(filled),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Said again next time, to a caller who has not just received something.
                Err(_) if filled > 0 => return Ok(filled),
                Err(_) => return Err(self.cut()),
            }
            if self.unseen.is_empty() {
                // Only a system call less: with nothing to hand out, the end must not be missed.
                if drained && filled > 0 {
                    return Ok(filled);
                }
                self.inbound.resize(INBOUND_LEN, 0);
                match self.tcp.read(&mut self.inbound) {
                    Ok(count) => {
                        drained = count < self.inbound.len();
                        self.unseen = 0..count;
                        self.greet(count)?;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) if filled > 0 => return Ok(filled),
                    Err(error) => return Err(error),
                }
            }
            self.decrypt()?;
        }
    }

    /// Looks at how a client begins.
    fn greet(&mut self, count: usize) -> io::Result<()> {
        let OtherEnd::Client { not_tls, is_new } = &mut self.other else { return Ok(()) };
        if std::mem::take(is_new) && count > 0 && self.inbound[0] != HANDSHAKE {
            // As far as the socket takes it at once, and a new one has room.
            let _told = self.tcp.write(not_tls);
            let problem = "it does not speak TLS, which this port demands";
            return Err(io::Error::new(ErrorKind::InvalidData, problem));
        }
        Ok(())
    }

    /// Lets rustls have what was read; nothing at all is how it learns of the end.
    fn decrypt(&mut self) -> io::Result<()> {
        let seen = self.conn.read_tls(&mut &self.inbound[self.unseen.clone()])?;
        self.unseen.start += seen;
        if let Err(error) = self.conn.process_new_packets() {
            // The alert that tells the peer why; the reason given here is the one that counts.
            let _ = self.flush();
            return Err(match self.other {
                OtherEnd::Peer(_) => explain(&error),
                OtherEnd::Client { .. } => io::Error::new(ErrorKind::InvalidData, error),
            });
        }
        Ok(())
    }

    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            taken += self.conn.writer().write(&buf[taken..])?;
            let pushed = self.flush()?;
            // During the handshake nothing that is pushed makes room for more.
            if taken == buf.len() || !pushed || self.conn.is_handshaking() {
                break;
            }
        }
        if taken == 0 && !buf.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<bool> {
        paxoslease_tls::flush(&mut self.conn, &mut self.tcp)
    }

    fn cut(&self) -> io::Error {
        let text = if self.conn.is_handshaking() {
            "the peer closed the connection during the TLS handshake: is [tls] set there too?"
        } else {
            "the connection was cut: it ended without the peer's goodbye"
        };
        io::Error::new(ErrorKind::UnexpectedEof, text)
    }
}

/// What went wrong in the words of somebody who has to set it right.
pub(super) fn explain(error: &Error) -> io::Error {
    use AlertDescription as Alert;
    use CertificateError as Cert;
    let text = match error {
        // A bad signature is what a CA of the same name with another key leads to.
        Error::InvalidCertificate(Cert::UnknownIssuer | Cert::BadSignature) => {
            "the peer's certificate is not signed by the CA in this node's [tls] ca".to_owned()
        }
        Error::InvalidCertificate(why) => format!("the peer's certificate is refused: {why}"),
        Error::NoCertificatesPresented => {
            "the peer sent no certificate: peers need their own, set by [tls] cert and key"
                .to_owned()
        }
        Error::AlertReceived(alert) => {
            let why = match alert {
                Alert::UnknownCA | Alert::DecryptError => {
                    "its [tls] ca has not signed this node's certificate"
                }
                Alert::BadCertificate => "this node's certificate is not for the node it called",
                Alert::CertificateRequired => "this node sent no certificate",
                Alert::CertificateExpired => {
                    "by its clock this node's certificate has expired or is not valid yet"
                }
                Alert::UnsupportedCertificate => {
                    "this node's certificate must allow both server and client authentication"
                }
                _ => "its own log says why",
            };
            format!("the peer refused the connection: {why} (TLS alert {alert:?})")
        }
        Error::InvalidMessage(why) => {
            format!("what the peer sent is not TLS: is [tls] set there too? ({why:?})")
        }
        other => format!("TLS failed: {other}"),
    };
    io::Error::new(ErrorKind::InvalidData, text)
}
