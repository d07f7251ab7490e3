//! A socket that accepts connections, and whether there are more to accept.

use std::io;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

/// The most connections that are accepted per turn, so that a flood of them delays no request.
const ACCEPTED_MAX: usize = 256;

pub(crate) struct Listener {
    socket: TcpListener,
    /// There may be more to accept.
    pub(super) more: bool,
    /// The last attempt failed, and no event follows for it: try again in the next turn.
    again: bool,
}

impl Listener {
    pub(crate) const fn new(socket: TcpListener) -> Self {
        Self { socket, more: false, again: false }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) {
        if let Err(error) = registry.register(&mut self.socket, token, Interest::READABLE) {
            tracing::error!(%error, "cannot listen");
        }
    }

    pub(super) fn accept(&mut self, mut take: impl FnMut(TcpStream)) {
        if !self.more && !self.again {
            return;
        }
        let tried_before = std::mem::take(&mut self.again);
        self.more = false;
        for _ in 0..ACCEPTED_MAX {
            match self.socket.accept() {
                Ok((stream, _)) => take(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if !tried_before {
                        tracing::warn!(%error, "connections cannot be accepted");
                    }
                    // Out of file descriptors, perhaps.
                    self.again = true;
                    return;
                }
            }
        }
        self.more = true;
    }
}
