//! The attacks: each runs in a thread until it is told to stop, most of them at a stated rate.

mod valid;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};
use paxoslease_bench::peers::{Ours, Service as _};
use paxoslease_client::Tls;
use paxoslease_core::{Ballot, Birth, Cell, Drift, Holder, Message, Name, NodeId, Request, Ttl};
use paxoslease_rig::clock::sleep;
use paxoslease_wire::{CellName, ClientAddress, FrameWriter, Hello, ListUse, ShardId, VERSION};

/// The time between two actions of an attacker with a rate.
const INTERVAL: Duration = Duration::from_millis(1);

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// What `Attacker::done` counts.
    pub(crate) unit: &'static str,
    pub(crate) what: &'static str,
    /// Whether the nodes use TLS with each other.
    pub(crate) needs_tls: bool,
    run: fn(&Attacker) -> Result<()>,
}

const fn attack(
    name: &'static str,
    unit: &'static str,
    run: fn(&Attacker) -> Result<()>,
    what: &'static str,
) -> Attack {
    Attack { name, unit, what, needs_tls: false, run }
}

#[rustfmt::skip]
pub(crate) const ALL: &[Attack] = &[
    attack("slowloris", "bytes", slowloris, "1000 clients, RESP and HTTP, each a byte a second of a request"),
    attack("unread", "bytes taken", unread, "50 clients that ask for echoes as fast as they can and read none"),
    attack("gigantic", "connections", gigantic, "a request of a billion arguments or half a gigabyte every ms"),
    attack("flood", "connections", flood, "a connection every ms that is closed at once"),
    attack("junk", "connections", junk, "a connection with a kilobyte of junk every ms, on each port in turn"),
    attack("peer", "messages", peer, "a peer that was let in and sends a frame of 50 bad messages every ms"),
    Attack {
        needs_tls: true,
        ..attack("handshakes", "handshakes", handshakes, "a handshake of TLS every ms by a stranger, who is then refused")
    },
    attack("watchers", "watches", watchers, "100 clients that watch every name over HTTP and read nothing"),
    attack("patterns", "patterns", patterns, "60 clients that watch 16 patterns each over RESP, none of which fits"),
    attack("waiters", "waits", waiters, "1000 clients that wait for one name, which others take in turns"),
    attack("slow-bodies", "bytes", slow_bodies, "500 clients whose requests over HTTP end a byte every second"),
    attack("long", "acquires", long, "a name and a holder as long as may be every ms, and one that is longer"),
    Attack {
        needs_tls: true,
        ..attack("tls-junk", "connections", junk, "the junk, where nodes use TLS")
    },
    attack("lists", "lists", valid::lists, "100 clients that list 1000 of 20,000 leases over RESP, again and again"),
    attack("unread-lists", "clients", valid::unread_lists, "60 clients that list the longest names there are over RESP and read nothing"),
    attack("unread-pages", "clients", valid::unread_pages, "100 clients that list the longest names there are over HTTP and read nothing"),
    attack("slow-readers", "bytes", valid::slow_readers, "the same, a byte read every second"),
    attack("leases", "leases", valid::leases, "20 leases of the longest names there are every ms, and none given back"),
    attack("probes", "probes", valid::probes, "10 clients that ask /readyz without a pause, beside 9000 who wait"),
];

/// The ports of the attacked node, and how the attack reports and ends.
struct Attacker {
    clients: String,
    http: String,
    peers: String,
    /// Trusts the nodes, and has no certificate.
    tls: Option<Tls>,
    is_ready: AtomicBool,
    stop: AtomicBool,
    done: AtomicU64,
}

impl Attacker {
    /// Repeats an action, which gets its number and returns how much it did.
    fn repeat(
        &self,
        interval: Duration,
        mut action: impl FnMut(usize) -> Result<u64>,
    ) -> Result<()> {
        self.is_ready.store(true, Ordering::Relaxed);
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.done.fetch_add(action(number)?, Ordering::Relaxed);
            sleep(interval);
        }
        Ok(())
    }

    /// Keeps connections open that have sent their requests, `each` per connection.
    fn keep(&self, streams: Vec<TcpStream>, each: u64) -> Result<()> {
        self.done.fetch_add(streams.len() as u64 * each, Ordering::Relaxed);
        self.repeat(INTERVAL, |_| Ok(0))?;
        drop(streams);
        Ok(())
    }

    /// Sends a byte on each connection about once a second.
    fn trickle(&self, mut streams: Vec<TcpStream>) -> Result<()> {
        let count = streams.len();
        self.repeat(Duration::from_secs(1) / count as u32, |number| {
            // The node may have closed the connection.
            Ok(streams[number % count].write(b"x").unwrap_or(0) as u64)
        })
    }
}

impl Attack {
    /// Acts once the attack is under way, and returns how much the attack did meanwhile.
    pub(crate) fn during(&self, cell: &Ours, act: impl FnOnce() -> Result<()>) -> Result<u64> {
        let first = |endpoints: Vec<String>| endpoints.into_iter().next().expect("three nodes");
        let attacker = Attacker {
            clients: first(cell.endpoints()),
            http: first(cell.http_endpoints()),
            peers: first(cell.peer_endpoints()),
            tls: cell.tls()?,
            is_ready: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| (self.run)(&attacker));
            while !attacker.is_ready.load(Ordering::Relaxed) && !thread.is_finished() {
                sleep(INTERVAL);
            }
            let acted = act();
            attacker.stop.store(true, Ordering::Relaxed);
            thread.join().map_err(|_| anyhow!("an attacker panicked"))??;
            acted
        })?;
        Ok(attacker.done.into_inner())
    }
}

fn slowloris(attacker: &Attacker) -> Result<()> {
    let (resp, http) = (
        &b"*2\r\n$4\r\nECHO\r\n$60000\r\n"[..],
        &b"GET /healthz HTTP/1.1\r\nhost: x\r\nslow: "[..],
    );
    let mut streams = connect_many(&attacker.clients, 500, resp)?;
    streams.extend(connect_many(&attacker.http, 500, http)?);
    attacker.trickle(streams)
}

fn slow_bodies(attacker: &Attacker) -> Result<()> {
    let head = format!(
        "POST /v1/leases/hostile/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n",
        attacker.http
    );
    attacker.trickle(connect_many(&attacker.http, 500, head.as_bytes())?)
}

/// Connections that have each sent these bytes.
fn connect_many(address: &str, count: usize, bytes: &[u8]) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(bytes)?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}

fn watchers(attacker: &Attacker) -> Result<()> {
    let watch = format!("GET /v1/watch HTTP/1.1\r\nhost: {}\r\n\r\n", attacker.http);
    attacker.keep(connect_many(&attacker.http, 100, watch.as_bytes())?, 1)
}

fn patterns(attacker: &Attacker) -> Result<()> {
    let watch: String =
        (0..16).map(|number| format!("LEASE.WATCH nobody/{number}/*\r\n")).collect();
    attacker.keep(connect_many(&attacker.clients, 60, watch.as_bytes())?, 16)
}

/// Reads the replies, on one connection.
fn long(attacker: &Attacker) -> Result<()> {
    let mut stream = TcpStream::connect(&attacker.clients)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (holder, mut reply) = ("h".repeat(Holder::LEN_MAX), [0; 1024]);
    attacker.repeat(INTERVAL, |number| {
        for len in [Name::LEN_MAX, Name::LEN_MAX + 1] {
            let acquire = format!("LEASE.ACQUIRE {number:0len$} 1000 HOLDER {holder}\r\n");
            stream.write_all(acquire.as_bytes())?;
            ensure!(stream.read(&mut reply)? > 0, "the node closed the connection");
        }
        Ok(2)
    })
}

fn waiters(attacker: &Attacker) -> Result<()> {
    let acquire = b"LEASE.ACQUIRE hostile 1000 WAIT 60000\r\n";
    attacker.keep(connect_many(&attacker.clients, 1000, acquire)?, 1)
}

fn unread(attacker: &Attacker) -> Result<()> {
    let echo = [b"*2\r\n$4\r\nECHO\r\n$8192\r\n".to_vec(), vec![b'x'; 8192], b"\r\n".to_vec()];
    let echo = echo.concat();
    let streams = connect_many(&attacker.clients, 50, b"")?;
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    // With how many bytes of the echo each connection has sent.
    let mut streams: Vec<(TcpStream, usize)> =
        streams.into_iter().map(|stream| (stream, 0)).collect();
    attacker.repeat(Duration::ZERO, |_| {
        let mut taken = 0;
        for (stream, at) in &mut streams {
            match stream.write(&echo[*at..]) {
                Ok(sent) => {
                    *at = (*at + sent) % echo.len();
                    taken += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if taken == 0 {
            sleep(INTERVAL);
        }
        Ok(taken)
    })
}

fn gigantic(attacker: &Attacker) -> Result<()> {
    let requests = [b"*1000000000\r\n".as_slice(), b"*1\r\n$536870912\r\n"];
    attacker.repeat(INTERVAL, |number| {
        send_and_drain(&attacker.clients, requests[number % 2])?;
        Ok(1)
    })
}

/// Sends bytes on a new connection and reads until the node closes it.
fn send_and_drain(address: &str, bytes: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let _closed = stream.write_all(bytes);
    let _closed = stream.shutdown(std::net::Shutdown::Write);
    let _reset = stream.read_to_end(&mut Vec::new());
    Ok(())
}

fn flood(attacker: &Attacker) -> Result<()> {
    attacker.repeat(INTERVAL, |_| {
        drop(TcpStream::connect(&attacker.clients)?);
        Ok(1)
    })
}

fn junk(attacker: &Attacker) -> Result<()> {
    let bytes: Vec<u8> =
        (0..1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let addresses = [&attacker.clients, &attacker.http, &attacker.peers];
    attacker.repeat(INTERVAL, |number| {
        send_and_drain(addresses[number % 3], &bytes)?;
        Ok(1)
    })
}

/// Connects as a proposer-only node, and then sends what no correct node would send.
fn peer(attacker: &Attacker) -> Result<()> {
    const MESSAGES: u64 = 50;
    let own = node(9);
    let mut stream = TcpStream::connect(&attacker.peers)?;
    let mut greeting = Vec::new();
    hello(own, boot()).encode(&mut greeting);
    stream.write_all(&greeting)?;
    let mut writer = FrameWriter::new(own);
    let bad = [Ballot::new(Ballot::COUNTER_LIMIT + 1, own), Ballot::new(1, node(2))];
    for number in 0..MESSAGES {
        let message = Message::Request(Request::Propose {
            name: Name::new("behaves/0").expect("in bounds"),
            ballot: bad[(number % 2) as usize],
            ttl: Ttl::MIN,
            holder: Holder::NONE,
        });
        ensure!(writer.push(&message), "a frame has room for {MESSAGES}");
    }
    let frame = writer.finish(1).to_vec();
    attacker.repeat(INTERVAL, |_| {
        stream.write_all(&frame)?;
        Ok(MESSAGES)
    })
}

/// Completes each handshake, so that the node has signed before it sees that the client has no
/// certificate.
fn handshakes(attacker: &Attacker) -> Result<()> {
    let tls = attacker.tls.as_ref().context("these nodes do not use TLS")?;
    attacker.repeat(INTERVAL, |_| {
        let mut tls = tls.connection(&attacker.peers).map_err(Error::msg)?;
        let mut stream = TcpStream::connect(&attacker.peers)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(1)
    })
}

/// A new number for every attack: a node drops traffic of older boots.
fn boot() -> u64 {
    static BOOTS: AtomicU64 = AtomicU64::new(1);
    BOOTS.fetch_add(1, Ordering::Relaxed)
}

fn hello(own: NodeId, boot: u64) -> Hello<'static> {
    // The defaults of `paxoslease serve`.
    let config = paxoslease_node::Config::new("default", 1);
    let drift = Drift::new(config.clock_drift_ppm, config.clock_granularity).expect("in bounds");
    let max_lease = Ttl::from_duration(config.max_lease).expect("in bounds");
    let members = [1, 2, 3].map(node);
    Hello {
        version: VERSION,
        cell_name: CellName::new("default").expect("in bounds"),
        cell: Cell::new(&members, max_lease, drift).expect("a cell"),
        node: own,
        boot,
        shard: ShardId::WHOLE,
        list: ListUse::Follows,
        durable_leases: config.durable_leases,
        birth: Birth::UNKNOWN,
        epoch: 0,
        clients: ClientAddress::new("").expect("in bounds"),
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}
