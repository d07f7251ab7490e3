//! Serving leases over RESP allocates nothing in the steady state.
//!
//! This is a test program of its own, because the allocator counts for the whole process.

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use paxoslease_server::{Access, Config, Server, TokenHash, Verb};
use paxoslease_wire::resp::{Value, put_array, put_bulk, put_bulk_integer};
use sha2::{Digest as _, Sha256};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NAMES: [&str; 4] = ["jobs/nightly", "jobs/hourly", "master", "shard/17"];

/// A client that reuses its buffers.
struct Client {
    socket: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
}

impl Client {
    /// Sends `out`, and passes this number of replies to `show`.
    fn exchange(&mut self, replies: usize, mut show: impl FnMut(usize, Value<'_>)) {
        self.socket.write_all(&self.out).expect("sends");
        self.out.clear();
        let mut shown = 0;
        while shown < replies {
            let len = self.socket.read(&mut self.input[self.filled..]).expect("answers");
            assert!(len > 0, "the connection goes on");
            self.filled += len;
            let mut start = 0;
            while let Some((value, len)) =
                Value::parse(&self.input[start..self.filled]).expect("sound")
            {
                show(shown, value);
                (shown, start) = (shown + 1, start + len);
            }
            self.input.copy_within(start..self.filled, 0);
            self.filled -= start;
        }
    }

    /// Acquires all names in one go, then releases them.
    fn pair(&mut self) {
        for name in NAMES {
            put_array(&mut self.out, 3);
            put_bulk(&mut self.out, b"LEASE.ACQUIRE");
            put_bulk(&mut self.out, name.as_bytes());
            put_bulk_integer(&mut self.out, 10_000);
        }
        let mut fences = [0; NAMES.len()];
        self.exchange(NAMES.len(), |place, value| {
            let fence = value.items().and_then(|mut items| items.next()).and_then(Value::decimal);
            fences[place] = fence.expect("granted");
        });
        for (name, fence) in NAMES.iter().zip(fences) {
            put_array(&mut self.out, 3);
            put_bulk(&mut self.out, b"LEASE.RELEASE");
            put_bulk(&mut self.out, name.as_bytes());
            put_bulk_integer(&mut self.out, fence);
        }
        self.exchange(NAMES.len(), |_, value| assert_eq!(value.integer(), Some(1)));
    }
}

/// The number of allocations while leases are acquired and released.
fn allocations(access: Vec<Access>) -> usize {
    let node = paxoslease_node::Config::new("test", 1).peer(1, "127.0.0.1:7401").listen("off");
    let mut config = Config::new(node.ephemeral().shards(1)).listen("127.0.0.1:0", "off");
    let is_guarded = !access.is_empty();
    config.access = access;
    let server = Server::start(config).expect("starts");
    let socket = TcpStream::connect(server.clients().expect("listens")).expect("connects");
    let (out, input) = (Vec::with_capacity(4096), vec![0; 64 * 1024]);
    let mut client = Client { socket, out, input, filled: 0 };
    if is_guarded {
        client.out.extend_from_slice(b"AUTH token\r\n");
        client.exchange(1, |_, value| assert!(matches!(value, Value::Simple(b"OK"))));
    }
    (0..500).for_each(|_| client.pair());
    let region = Region::new(ALLOCATOR);
    (0..1250).for_each(|_| client.pair());
    region.change().allocations
}

#[test]
fn an_acquire_and_release_over_resp_allocate_nothing() {
    let hash = TokenHash::new(Sha256::digest("token").into());
    let names = ["other/*", "*"].map(|name| name.parse().expect("a pattern"));
    let guarded = Access::new(hash, names, [Verb::Read, Verb::Acquire]);
    for access in [Vec::new(), vec![guarded]] {
        let tokens = access.len();
        let allocations = allocations(access);
        // Metrics are published a few times a second, and that allocates. One allocation per
        // command would be 10000.
        assert!(allocations < 2500, "{allocations} for 10000 commands with {tokens} tokens");
    }
}
