//! A TCP connection with or without TLS.
//!
//! Reads and writes never block: `WouldBlock` means that nothing can be read or written for now,
//! and [`Stream::ready`] waits. There is no RESP and no timeout here.

use std::io::{self, ErrorKind, Read, Write};

use paxoslease_tls::receive;
use rustls::{ClientConnection, Connection};
use tokio::io::Interest;
use tokio::net::TcpStream;

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

pub(super) struct TlsStream {
    conn: Connection,
    tcp: TcpStream,
}

impl Stream {
    /// Appends what has arrived to `inbox`; 0 at the end of the stream.
    pub(super) fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(inbox),
            Self::Tls(tls) => tls.read(inbox),
        }
    }

    /// Takes a prefix of the bytes, and returns its length.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Sends bytes that `write` has taken, as far as the socket takes them.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Waits until the socket is writable. Cancel-safe.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.tcp().writable().await
    }

    /// Waits until the socket is readable, or writable if there are bytes to send. Cancel-safe.
    pub(super) async fn ready(&self, to_send: bool) -> io::Result<()> {
        let mut interest = Interest::READABLE;
        if to_send || matches!(self, Self::Tls(tls) if tls.conn.wants_write()) {
            interest |= Interest::WRITABLE;
        }
        self.tcp().ready(interest).await.map(drop)
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }
}

impl TlsStream {
    /// Runs the handshake, which checks the node's certificate.
    pub(super) async fn begin(conn: ClientConnection, tcp: TcpStream) -> io::Result<Self> {
        let mut tls = Self { conn: conn.into(), tcp };
        loop {
            tls.flush()?;
            if !tls.conn.is_handshaking() {
                return Ok(tls);
            }
            let interest =
                if tls.conn.wants_write() { Interest::WRITABLE } else { Interest::READABLE };
            tls.tcp.ready(interest).await?;
            match receive(&mut tls.conn, &mut Socket(&tls.tcp)) {
                Ok(0) => {
                    let text = "it closed the connection during the TLS handshake";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Takes all decrypted bytes each time, so that none waits in rustls while the socket is
    /// silent.
    fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        let before = inbox.len();
        loop {
            let taken = self.conn.reader().read_to_end(inbox);
            match taken {
                _ if inbox.len() > before => return Ok(inbox.len() - before),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // With or without close_notify: replies carry their own length.
                Ok(_) | Err(_) => return Ok(0),
            }
            receive(&mut self.conn, &mut Socket(&self.tcp))?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The buffer of rustls is bounded, so a flush may make room.
        self.flush()?;
        let taken = self.conn.writer().write(bytes)?;
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.flush()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        paxoslease_tls::flush(&mut self.conn, &mut Socket(&self.tcp)).map(drop)
    }
}

/// `Read` and `Write` for rustls.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
