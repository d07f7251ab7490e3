//! One end of a connection, in clear or over TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::PATIENCE;

pub(crate) enum Wire {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).expect("connects"))
    }

    pub(crate) fn on(socket: TcpStream) -> Self {
        socket.set_nodelay(true).expect("an option of every socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Self::Clear(socket)
    }

    /// The handshake begins with the first write.
    pub(crate) fn tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::from(address.ip());
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
        let Self::Clear(socket) = Self::connect(address) else { unreachable!("it is in clear") };
        Self::Tls(Box::new(StreamOwned::new(connection, socket)))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Sends bytes, and returns whether the daemon took all of them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.write_all(bytes).and_then(|()| self.flush()).is_ok()
    }

    /// Sends nothing more, but still reads.
    pub(crate) fn end(&self) {
        // The daemon may have closed the connection already.
        let _closed = self.socket().shutdown(Shutdown::Write);
    }

    /// Everything that comes until the daemon closes the connection.
    pub(crate) fn read_to_close(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.read_to_end(&mut bytes) {
            Ok(_) => {}
            // The daemon closed before it had read everything.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the daemon does not close the connection: {error}"),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
