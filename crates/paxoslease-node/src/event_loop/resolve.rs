//! Turns "host:port" into an address: at once where it is one already, else on a thread of its
//! own, since a name server may take its time and a shard has none. Looked up anew for every dial,
//! because hosts move.

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

/// `None` when the answer will be posted. `attempt` counts the dials of this peer.
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
            // A host with several addresses is tried at each in turn.
            found.get(attempt % found.len().max(1)).copied().ok_or_else(nothing)
        });
        // A shard that left meanwhile needs no answer.
        let _left = mailbox.post(Post::Sockets(SocketPost::Resolved { lookup, outcome }));
    };
    match thread::Builder::new().name("paxoslease-resolve".to_owned()).spawn(look_up) {
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}
