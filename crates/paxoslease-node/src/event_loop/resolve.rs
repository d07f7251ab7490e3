//! Resolves "host:port". A host name is looked up on a thread of its own, since a name server may
//! be slow and a shard must not block. Every dial looks it up again, because hosts move.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;

use paxoslease_core::NodeId;

use super::{Post, SocketPost};
use crate::driver::ConnId;
use crate::mailbox::Mailbox;

/// The dial that a look-up is for.
#[derive(Clone, Copy)]
pub(crate) struct LookupId {
    pub(super) peer: NodeId,
    pub(super) conn: ConnId,
    pub(super) serial: u64,
}

/// Returns `None` if the answer will be posted. `attempt` counts the dials of this peer.
pub(super) fn resolve(
    address: &str,
    lookup: LookupId,
    attempt: usize,
    mailbox: &Arc<Mailbox<Post>>,
) -> Option<io::Result<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Some(Ok(address));
    }
    let (address, mailbox) = (address.to_owned(), Arc::clone(mailbox));
    let look_up = move || {
        let outcome = address.to_socket_addrs().and_then(|found| {
            let found: Vec<SocketAddr> = found.collect();
            let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            // The addresses of a host are tried in turn.
            found.get(attempt % found.len().max(1)).copied().ok_or_else(nothing)
        });
        // A shard that stopped meanwhile needs no answer.
        let _left = mailbox.post(Post::Sockets(SocketPost::Resolved { lookup, outcome }));
    };
    match thread::Builder::new().name("paxoslease-resolve".to_owned()).spawn(look_up) {
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}
