//! A connection that may or may not be encrypted, for a link that does not care which.
//!
//! Never blocks by itself: whoever waits asks [`Stream::ready`], and `WouldBlock` means that there
//! is nothing to read, or no room to write, for now. Knows no RESP and no time.

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
    /// Reads what is there; zero when there is no more to come.
    pub(super) fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(inbox),
            Self::Tls(tls) => tls.read(inbox),
        }
    }

    /// Takes a prefix and says how long it was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Pushes what was taken and not sent yet, as far as there is room.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Waits until there is room to write. Cancel-safe.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.tcp().writable().await
    }

    /// Waits until something can be read, or sent if that is wanted. Cancel-safe.
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
    /// Agrees with the other side on keys, and looks at its certificate.
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

    /// All that rustls has is taken out each time: nothing waits there while the socket is silent.
    fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        let before = inbox.len();
        loop {
            let taken = self.conn.reader().read_to_end(inbox);
            match taken {
                _ if inbox.len() > before => return Ok(inbox.len() - before),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // With a goodbye or without: replies say themselves when they are whole.
                Ok(_) | Err(_) => return Ok(0),
            }
            receive(&mut self.conn, &mut Socket(&self.tcp))?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What rustls keeps is bounded, so there may be room only after this.
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

/// The socket as rustls wants it.
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
