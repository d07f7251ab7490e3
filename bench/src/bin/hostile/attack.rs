//! The attacks: threads that do harm at a stated pace until they are told to stop.

mod valid;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use paxoslease_bench::peers::Ours;
use paxoslease_core::{Ballot, Cell, Drift, Holder, Message, Name, NodeId, Request, Ttl};
use paxoslease_rig::clock::sleep;
use paxoslease_wire::{CellName, FrameWriter, Hello, ShardId, VERSION};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// How often those attack that go by a pace.
const PACE: Duration = Duration::from_millis(1);

/// A way to do harm.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// What the attackers do is counted in.
    pub(crate) unit: &'static str,
    pub(crate) what: &'static str,
    /// Whether it is done to nodes that speak TLS with each other.
    pub(crate) needs_tls: bool,
    run: fn(&Means) -> Result<()>,
}

const fn attack(
    name: &'static str,
    unit: &'static str,
    run: fn(&Means) -> Result<()>,
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
        ..attack("tls-junk", "connections", junk, "the junk, where nodes speak TLS")
    },
    attack("lists", "lists", valid::lists, "100 clients that list 1000 of 20,000 leases over RESP, again and again"),
    attack("unread-lists", "clients", valid::unread_lists, "60 clients that list the longest names there are over RESP and read nothing"),
    attack("unread-pages", "clients", valid::unread_pages, "100 clients that list the longest names there are over HTTP and read nothing"),
    attack("slow-readers", "bytes", valid::slow_readers, "the same, a byte read every second"),
    attack("leases", "leases", valid::leases, "20 leases of the longest names there are every ms, and none given back"),
    attack("probes", "probes", valid::probes, "10 clients that ask /readyz without a pause, beside 9000 who wait"),
];

/// Attackers at work.
pub(crate) struct Attacking {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Attacking {
    /// Has them stop, and says how much they did.
    pub(crate) fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("an attacker panicked"))??;
        Ok(self.done.load(Ordering::Relaxed))
    }
}

/// What an attacker knows.
struct Means {
    clients: String,
    http: String,
    peers: String,
    trust: Option<Arc<ClientConfig>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    place: Sender<()>,
}

impl Means {
    /// The attack is on.
    fn in_place(&self) {
        let _nobody_waits = self.place.send(());
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn did(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }
}

impl Attack {
    /// Comes back once the attackers are where they want to be.
    pub(crate) fn start(&self, cell: &Ours) -> Result<Attacking> {
        let (stop, done) = (Arc::default(), Arc::default());
        let (place, in_place) = mpsc::channel();
        let first = |endpoints: Vec<String>| endpoints.into_iter().next().expect("three nodes");
        let means = Means {
            clients: first(cell.endpoints()),
            http: first(cell.http_endpoints()),
            peers: first(cell.peer_endpoints()),
            trust: cell.certificates().map(crate::trust).transpose()?,
            stop: Arc::clone(&stop),
            done: Arc::clone(&done),
            place,
        };
        let run = self.run;
        let thread = std::thread::Builder::new().spawn(move || run(&means))?;
        // Whoever gives up before is heard of when it is stopped.
        let _gave_up = in_place.recv();
        Ok(Attacking { stop, done, thread })
    }
}

fn slowloris(means: &Means) -> Result<()> {
    let (resp, http) = (
        &b"*2\r\n$4\r\nECHO\r\n$60000\r\n"[..],
        &b"GET /healthz HTTP/1.1\r\nhost: x\r\nslow: "[..],
    );
    let mut streams = crowd(&means.clients, 500, resp)?;
    streams.extend(crowd(&means.http, 500, http)?);
    trickle(means, streams)
}

fn slow_bodies(means: &Means) -> Result<()> {
    let head = format!(
        "POST /v1/leases/hostile/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n",
        means.http
    );
    trickle(means, crowd(&means.http, 500, head.as_bytes())?)
}

/// As many connections, each of which has said this.
fn crowd(address: &str, count: usize, begin: &[u8]) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(begin)?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}

/// Each says a byte, one after the other, so that each has its turn about once a second.
fn trickle(means: &Means, mut streams: Vec<TcpStream>) -> Result<()> {
    means.in_place();
    let pace = Duration::from_secs(1) / streams.len() as u32;
    while means.goes_on() {
        for stream in &mut streams {
            // Those that were given up are gone.
            let said = stream.write(b"x").unwrap_or(0);
            means.did(said as u64);
            sleep(pace);
            if !means.goes_on() {
                break;
            }
        }
    }
    Ok(())
}

fn watchers(means: &Means) -> Result<()> {
    let watch = format!("GET /v1/watch HTTP/1.1\r\nhost: {}\r\n\r\n", means.http);
    let streams = crowd(&means.http, 100, watch.as_bytes())?;
    means.did(streams.len() as u64);
    stay(means, streams);
    Ok(())
}

fn patterns(means: &Means) -> Result<()> {
    const EACH: usize = 16;
    let watch: String =
        (0..EACH).map(|number| format!("LEASE.WATCH nobody/{number}/*\r\n")).collect();
    let streams = crowd(&means.clients, 60, watch.as_bytes())?;
    means.did((streams.len() * EACH) as u64);
    stay(means, streams);
    Ok(())
}

/// On one connection, whose answers are read.
fn long(means: &Means) -> Result<()> {
    let mut stream = TcpStream::connect(&means.clients)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (holder, mut answer) = ("h".repeat(Holder::LEN_MAX), [0; 1024]);
    means.in_place();
    for number in 0.. {
        if !means.goes_on() {
            break;
        }
        for len in [Name::LEN_MAX, Name::LEN_MAX + 1] {
            let name = format!("{number:0len$}");
            let acquire = format!("LEASE.ACQUIRE {name} 1000 HOLDER {holder}\r\n");
            stream.write_all(acquire.as_bytes())?;
            anyhow::ensure!(stream.read(&mut answer)? > 0, "it hung up");
            means.did(1);
        }
        sleep(PACE);
    }
    Ok(())
}

fn waiters(means: &Means) -> Result<()> {
    let streams = crowd(&means.clients, 1000, b"LEASE.ACQUIRE hostile 1000 WAIT 60000\r\n")?;
    means.did(streams.len() as u64);
    stay(means, streams);
    Ok(())
}

/// Does nothing more for as long as the others are measured.
fn stay(means: &Means, streams: Vec<TcpStream>) {
    means.in_place();
    while means.goes_on() {
        sleep(PACE);
    }
    drop(streams);
}

fn unread(means: &Means) -> Result<()> {
    let echo = [b"*2\r\n$4\r\nECHO\r\n$8192\r\n".to_vec(), vec![b'x'; 8192], b"\r\n".to_vec()];
    let echo = echo.concat();
    let mut streams = Vec::new();
    for _ in 0..50 {
        let stream = TcpStream::connect(&means.clients)?;
        stream.set_nonblocking(true)?;
        // What of the echo is still to be said.
        streams.push((stream, 0));
    }
    means.in_place();
    while means.goes_on() {
        let mut taken = 0;
        for (stream, at) in &mut streams {
            match stream.write(&echo[*at..]) {
                Ok(sent) => {
                    *at = (*at + sent) % echo.len();
                    taken += sent;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        means.did(taken as u64);
        if taken == 0 {
            sleep(PACE);
        }
    }
    Ok(())
}

fn gigantic(means: &Means) -> Result<()> {
    means.in_place();
    for request in [b"*1000000000\r\n".as_slice(), b"*1\r\n$536870912\r\n"].into_iter().cycle() {
        if !means.goes_on() {
            break;
        }
        refused(&means.clients, request)?;
        means.did(1);
        sleep(PACE);
    }
    Ok(())
}

/// Says so and hears it out.
fn refused(address: &str, bytes: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let _hung_up = stream.write_all(bytes);
    let _hung_up = stream.shutdown(std::net::Shutdown::Write);
    let mut heard = Vec::new();
    let _reset = stream.read_to_end(&mut heard);
    Ok(())
}

fn flood(means: &Means) -> Result<()> {
    means.in_place();
    while means.goes_on() {
        drop(TcpStream::connect(&means.clients)?);
        means.did(1);
        sleep(PACE);
    }
    Ok(())
}

fn junk(means: &Means) -> Result<()> {
    let bytes: Vec<u8> =
        (0..1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    means.in_place();
    for address in [&means.clients, &means.http, &means.peers].into_iter().cycle() {
        if !means.goes_on() {
            break;
        }
        refused(address, &bytes)?;
        means.did(1);
        sleep(PACE);
    }
    Ok(())
}

/// Is let in as a node that only proposes, and then sends what no honest node would.
fn peer(means: &Means) -> Result<()> {
    const MESSAGES: u64 = 50;
    let own = node(9);
    let mut stream = TcpStream::connect(&means.peers)?;
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
        anyhow::ensure!(writer.push(&message), "a frame has room for {MESSAGES}");
    }
    let frame = writer.finish(1).to_vec();
    means.in_place();
    while means.goes_on() {
        stream.write_all(&frame)?;
        means.did(MESSAGES);
        sleep(PACE);
    }
    Ok(())
}

/// Goes all the way, so that the node has signed for nothing when it sees that nobody vouches for
/// this client.
fn handshakes(means: &Means) -> Result<()> {
    let trust = means.trust.as_ref().context("these nodes do not speak TLS")?;
    means.in_place();
    while means.goes_on() {
        let name = ServerName::try_from("127.0.0.1")?;
        let mut tls = ClientConnection::new(Arc::clone(trust), name)?;
        let mut stream = TcpStream::connect(&means.peers)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        means.did(1);
        sleep(PACE);
    }
    Ok(())
}

/// Another one for every attack: a boot that is over is not listened to again.
fn boot() -> u64 {
    static BOOTS: AtomicU64 = AtomicU64::new(1);
    BOOTS.fetch_add(1, Ordering::Relaxed)
}

fn hello(own: NodeId, boot: u64) -> Hello<'static> {
    // As `paxoslease serve` has it unless told otherwise.
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
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}
