//! A connection with or without TLS, behind one interface.
//!
//! Never blocks, and expects edge-triggered events: read until `WouldBlock`, then `flush`, since a
//! read may have produced handshake bytes, key updates or an alert. Both directions are bounded: at
//! most [`CIPHERTEXT_MAX`] bytes wait for the socket, and no more is read than the caller has room
//! for. Any error except `WouldBlock` is the end of the connection.
//!
//! Deliberately absent: frames, events, deadlines (the loop closes a stalled handshake).

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;

use mio::net::TcpStream;
use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use rustls::{AlertDescription, CertificateError, Connection, Error};

use super::names::NodeNames;

/// The most plaintext that waits for the handshake, and about as much ciphertext for the socket.
pub(super) const CIPHERTEXT_MAX: usize = 64 * 1024;

/// Two TLS records: rustls alone would ask the system for 4 KiB at a time.
const INBOUND_LEN: usize = 32 * 1024;

/// A connection to a peer or a client.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) fn tls<C: Into<Connection>>(
        conn: Result<C, Error>,
        tcp: TcpStream,
        other: OtherEnd,
    ) -> io::Result<Self> {
        let mut conn = conn.map_err(|error| explain(&error))?.into();
        conn.set_buffer_limit(Some(CIPHERTEXT_MAX));
        let (inbound, unseen) = (Vec::new(), 0..0);
        Ok(Self::Tls(Box::new(TlsStream { conn, tcp, other, inbound, unseen })))
    }

    /// Reads the bytes that have arrived. `Ok(0)` means closed in good order, `WouldBlock` that
    /// there is no more for now; so does a read that left room in `buf`, except that the end may
    /// follow. `spare` is a buffer that connections share.
    pub(crate) fn read(&mut self, buf: &mut [u8], spare: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buf),
            Self::Tls(tls) => tls.read(buf, spare),
        }
    }

    /// Takes a prefix of `buf` and returns its length; `WouldBlock` if there is no room.
    pub(crate) fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(buf),
            Self::Tls(tls) => tls.write(buf),
        }
    }

    /// Sends bytes that were taken and not sent yet. Returns whether all are sent.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Whether `flush` has something to send.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.wants_write(),
        }
    }

    /// Whether written bytes have to wait for the handshake. The dialer finishes before the
    /// acceptor has checked its certificate: only bytes from the acceptor prove that it was
    /// accepted.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.is_handshaking(),
        }
    }

    /// Whether the other side has proven to be `node` in this role. Without TLS there is no proof
    /// to ask for.
    pub(crate) fn peer_is(&self, node: NodeId, role: Role) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => {
                let OtherEnd::Peer(names) = &tls.other else { return false };
                let certificate = tls.conn.peer_certificates().and_then(<[_]>::first);
                certificate.is_some_and(|certificate| names.is_of(certificate, node, role))
            }
        }
    }

    /// Announces the end, so that the other side can tell it from a broken connection. Without TLS,
    /// closing the socket announces it.
    pub(crate) fn close_notify(&mut self) {
        if let Self::Tls(tls) = self {
            tls.conn.send_close_notify();
            // A peer that is gone needs no announcement.
            let _gone = tls.flush();
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }

    /// The socket, to register it. Only the methods above may read or write it.
    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &mut tls.tcp,
        }
    }
}

/// The other end of a TLS connection: a peer, with the names of the nodes of its cell, or a client,
/// with the bytes for a client that does not use TLS. A client is new until bytes arrive.
pub(super) enum OtherEnd {
    Peer(NodeNames),
    Client { not_tls: &'static [u8], is_new: bool },
}

/// The first byte of every TLS connection: the kind of its first record.
const HANDSHAKE: u8 = 0x16;

/// One side of a TLS connection and its socket.
pub(crate) struct TlsStream {
    pub(super) conn: Connection,
    tcp: TcpStream,
    other: OtherEnd,
    /// Empty memory goes back to the connections' spare buffer: idle connections are many.
    inbound: Vec<u8>,
    /// The part of `inbound` that rustls has not read yet.
    unseen: Range<usize>,
}

impl TlsStream {
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
                // Either `buf` is full or the peer announced the end.
                Ok(0) => return Ok(filled),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Reported by the next read: this one has bytes to return.
                Err(_) if filled > 0 => return Ok(filled),
                Err(_) => return Err(self.cut()),
            }
            if self.unseen.is_empty() {
                // This only saves a system call. With no bytes to return, the end must be noticed.
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

    /// Checks the first byte of a client.
    fn greet(&mut self, count: usize) -> io::Result<()> {
        let OtherEnd::Client { not_tls, is_new } = &mut self.other else { return Ok(()) };
        if std::mem::take(is_new) && count > 0 && self.inbound[0] != HANDSHAKE {
            // A new socket has room for it.
            let _told = self.tcp.write(not_tls);
            let problem = "it does not use TLS, which this port requires";
            return Err(io::Error::new(ErrorKind::InvalidData, problem));
        }
        Ok(())
    }

    /// Passes the bytes that were read to rustls, or none at the end of the stream.
    fn decrypt(&mut self) -> io::Result<()> {
        let seen = self.conn.read_tls(&mut &self.inbound[self.unseen.clone()])?;
        self.unseen.start += seen;
        if let Err(error) = self.conn.process_new_packets() {
            // Sends the alert that tells the peer why. The reason here is the one to report.
            let _gone = self.flush();
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
            // During the handshake a flush makes no room for more plaintext.
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
            "the connection broke: the peer did not announce its end"
        };
        io::Error::new(ErrorKind::UnexpectedEof, text)
    }
}

/// An error of TLS in words for the operator of this node.
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
                Alert::BadCertificate => "the peer expected the certificate of another node",
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
