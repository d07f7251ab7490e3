//! A daemon and one client of it in the same process: everything between a socket and a lease but
//! the peers. The daemon is a cell of its own, so that every command of a batch is answered in the
//! turn that brought it, and all replies leave in one write.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_server::{Config, Server};
use paxoslease_wire::resp::Value;

use super::bytes::{BATCH, put_acquire, put_release, put_renew};
use super::names::Names;

/// A daemon with a client that asks in batches, each only after the last was answered.
#[derive(Debug)]
pub struct Served {
    server: Server,
    socket: TcpStream,
    names: Names,
    /// By name: as it was granted last.
    fences: Vec<u64>,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Served {
    /// Starts the daemon and connects.
    pub fn start() -> Result<Self> {
        let peers = TcpListener::bind("127.0.0.1:0")?;
        let node = paxoslease_node::Config::new("bench", 1);
        let node = node.peer(1, peers.local_addr()?.to_string()).ephemeral().shards(1);
        // Without spinning, because how often a loop polls in vain depends on the machine.
        let config = Config::new(node.spin(Duration::ZERO)).listen("127.0.0.1:0", "off");
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

    /// Acquires a batch of names.
    pub fn acquire(&mut self) -> Result<()> {
        let put = |out: &mut Vec<u8>, name: &[u8], _fence| put_acquire(out, name);
        self.exchange(put, |fence, reply| {
            let granted = reply.items().and_then(|mut items| items.next());
            let granted = granted.and_then(Value::integer).context("a name is not free")?;
            *fence = granted.cast_unsigned();
            Ok(())
        })
    }

    /// Renews what was acquired.
    pub fn renew(&mut self) -> Result<()> {
        self.exchange(put_renew, |_, reply| {
            ensure!(!matches!(reply, Value::Error(_)), "a lease is over");
            Ok(())
        })
    }

    /// Releases what was acquired.
    pub fn release(&mut self) -> Result<()> {
        self.exchange(put_release, |_, reply| {
            ensure!(reply.integer() == Some(1), "a lease is over");
            Ok(())
        })
    }

    /// Sends a command for each name, and takes the replies.
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

    /// Stops the daemon.
    pub fn stop(self) {
        drop(self.socket);
        self.server.shutdown();
    }
}
