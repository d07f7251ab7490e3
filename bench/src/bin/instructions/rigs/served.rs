//! A daemon and one client in the same process: everything between a socket and a lease except the
//! peers. The daemon is a cell of one node, so that it answers a batch in one write.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};
use paxoslease_node::Spin;
use paxoslease_server::{Config, Server};
use paxoslease_wire::resp::Value;

use super::bytes::{BATCH, put_acquire, put_release, put_renew};
use super::names::Names;

/// A daemon, and a client with one batch in flight at a time.
pub(crate) struct Served {
    server: Server,
    socket: TcpStream,
    names: Names,
    /// The last fence of each name.
    fences: Vec<u64>,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Served {
    pub(crate) fn start() -> Result<Self> {
        let peers = TcpListener::bind("127.0.0.1:0")?;
        let node = paxoslease_node::Config::new("bench", 1);
        let node = node.peer(1, peers.local_addr()?.to_string()).ephemeral().shards(1);
        // Without spinning, because how often a loop polls in vain depends on the machine.
        let config = Config::new(node.spin(Spin::Off)).listen("127.0.0.1:0", "off");
        let server = Server::start_on(config, Some(peers))?;
        let socket = TcpStream::connect(server.clients().context("it listens")?)?;
        Ok(Self {
            server,
            socket,
            names: Names::of(0..BATCH),
            fences: vec![0; BATCH as usize],
            out: Vec::new(),
            input: vec![0; 64 * 1024],
        })
    }

    pub(crate) fn acquire(&mut self) -> Result<()> {
        let put = |out: &mut Vec<u8>, name: &[u8], _fence| put_acquire(out, name);
        self.exchange(put, |fence, reply| {
            let granted = reply.items().and_then(|mut items| items.next());
            *fence = granted.and_then(Value::decimal).context("a name is not free")?;
            Ok(())
        })
    }

    pub(crate) fn renew(&mut self) -> Result<()> {
        self.exchange(put_renew, |_, reply| {
            ensure!(!matches!(reply, Value::Error(_)), "a lease is over");
            Ok(())
        })
    }

    pub(crate) fn release(&mut self) -> Result<()> {
        self.exchange(put_release, |_, reply| {
            ensure!(reply.integer() == Some(1), "a lease is over");
            Ok(())
        })
    }

    /// Sends a command for each name, and handles the replies.
    fn exchange(
        &mut self,
        put: impl Fn(&mut Vec<u8>, &[u8], u64),
        mut take: impl FnMut(&mut u64, Value<'_>) -> Result<()>,
    ) -> Result<()> {
        self.out.clear();
        for (at, fence) in self.fences.iter().enumerate() {
            put(&mut self.out, self.names.get(at).as_bytes(), *fence);
        }
        self.socket.write_all(&self.out)?;
        let mut fences = self.fences.iter_mut();
        let (mut start, mut end) = (0, 0);
        while fences.len() > 0 {
            let len = self.socket.read(&mut self.input[end..])?;
            ensure!(len > 0, "the daemon closed the connection");
            end += len;
            while let Some((reply, len)) = Value::parse(&self.input[start..end])? {
                take(fences.next().context("a reply to no command")?, reply)?;
                start += len;
            }
        }
        Ok(())
    }

    pub(crate) fn stop(self) {
        drop(self.socket);
        self.server.shutdown();
    }
}
