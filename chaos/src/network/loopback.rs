//! What can be done without root: everything on loopback, with a proxy of our own on every way
//! from a place to a door of a node.
//!
//! Bytes that must not pass are kept until they may, as a retransmission would bring them later;
//! a connection begun while a way is cut hangs. A lost packet costs a connection what it costs
//! TCP: time. Nothing is reordered, as a stream cannot be; nothing below TCP is touched.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_sim::Rng;

use super::{Door, Network, Place, Way, Weather};
use crate::log::now;

/// How long TCP takes at least until it sends again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Read at once and passed on at once.
const CHUNK: usize = 16_384;

/// The weather, and a word to whoever waits for a better one.
type Sky = Arc<(Mutex<Weather>, Condvar)>;

/// Proxies on loopback.
pub struct Loopback {
    sky: Sky,
    listen: BTreeMap<(u16, Door), u16>,
    proxies: BTreeMap<(Place, u16, Door), u16>,
}

impl Loopback {
    /// Ports for every door, and a proxy on every way to it.
    ///
    /// # Errors
    /// When there are not so many ports or threads.
    pub fn build(places: &[Place], seed: u64) -> Result<Self> {
        let mut loopback =
            Self { sky: Sky::default(), listen: BTreeMap::new(), proxies: BTreeMap::new() };
        let nodes = places.iter().filter_map(|place| match place {
            Place::Node(id) => Some(*id),
            Place::Clients(_) => None,
        });
        let doors: Vec<(u16, Door)> =
            nodes.flat_map(|node| Door::ALL.map(|door| (node, door))).collect();
        // All are held at once, so that none is given twice.
        let held: Vec<TcpListener> = doors.iter().map(|_| any_port()).collect::<Result<_>>()?;
        for (door, listener) in doors.iter().zip(&held) {
            loopback.listen.insert(*door, listener.local_addr()?.port());
        }
        for from in places {
            for (node, door) in &doors {
                let listener = any_port()?;
                let port = listener.local_addr()?.port();
                let target = (Ipv4Addr::LOCALHOST, loopback.listen[&(*node, *door)]).into();
                let way = (*from, Place::Node(*node));
                let rng = Rng::new(seed, u64::from(port));
                let sky = Arc::clone(&loopback.sky);
                spawn(move || accept(&listener, target, way, &sky, rng))?;
                loopback.proxies.insert((*from, *node, *door), port);
            }
        }
        Ok(loopback)
    }
}

impl Network for Loopback {
    fn description(&self) -> &'static str {
        "loopback with a proxy of TCP connections on every way; no packets are lost or reordered, \
         connections wait as if they had been"
    }

    fn listen(&self, node: u16, door: Door) -> String {
        format!("127.0.0.1:{}", self.listen[&(node, door)])
    }

    fn address(&self, from: Place, node: u16, door: Door) -> String {
        format!("127.0.0.1:{}", self.proxies[&(from, node, door)])
    }

    fn command(&self, _place: Place, program: &Path) -> Command {
        Command::new(program)
    }

    fn set(&mut self, weather: &Weather) -> Result<()> {
        *self.sky.0.lock().unwrap_or_else(PoisonError::into_inner) = weather.clone();
        self.sky.1.notify_all();
        Ok(())
    }
}

fn any_port() -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port on loopback")
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name("proxy".to_owned()).spawn(work).context("no thread")?;
    Ok(())
}

fn accept(listener: &TcpListener, target: SocketAddr, way: Way, sky: &Sky, mut rng: Rng) {
    for near in listener.incoming().flatten() {
        let (sky, seed) = (Arc::clone(sky), rng.bits());
        // Without a thread the connection is closed, and whoever began it tries again.
        let _refused = spawn(move || {
            let back = (way.1, way.0);
            pass(&sky, way, &mut Rng::new(seed, 0));
            pass(&sky, back, &mut Rng::new(seed, 1));
            let Ok(far) = TcpStream::connect(target) else { return };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
            let sky_too = Arc::clone(&sky);
            let _refused = spawn(move || copy(&far_too, &near_too, back, &sky_too, seed ^ 2));
            copy(&near, &far, way, &sky, seed ^ 3);
        });
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, way: Way, sky: &Sky, seed: u64) {
    let mut rng = Rng::new(seed, 0);
    let mut buffer = vec![0; CHUNK];
    let _latency_only = to.set_nodelay(true);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        pass(sky, way, &mut rng);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The end is news, too, and may be late, but is not kept back: who waits for it could be gone.
    let _gone = to.shutdown(Shutdown::Both);
    let _gone = from.shutdown(Shutdown::Both);
}

/// Waits until a packet that is sent now would be through.
fn pass((weather, changed): &(Mutex<Weather>, Condvar), (from, to): Way, rng: &mut Rng) {
    let mut guard = weather.lock().unwrap_or_else(PoisonError::into_inner);
    let mut late = Duration::ZERO;
    if guard.loss.get(&to).is_some_and(|permille| rng.chance(*permille)) {
        late += RETRANSMISSION;
    }
    for place in [from, to] {
        if let Some(delay) = guard.delay.get(&place) {
            late += delay.least;
            late += Duration::from_nanos(rng.below(delay.spread.as_nanos() as u64 + 1));
        }
    }
    let due_at = now() + late.as_nanos() as u64;
    loop {
        let now = now();
        let is_cut = guard.cut.contains(&(from, to));
        if !is_cut && now >= due_at {
            return;
        }
        let wait = if is_cut { RETRANSMISSION } else { Duration::from_nanos(due_at - now) };
        (guard, _) = changed.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place::Clients(1);
    const THERE: Place = Place::Node(1);

    /// A network, a node that listens, and where clients reach it.
    fn network() -> (Loopback, TcpListener, String) {
        let network = Loopback::build(&[THERE, HERE], 1).expect("loopback");
        let node = TcpListener::bind(network.listen(1, Door::Clients)).expect("its own port");
        let address = network.address(HERE, 1, Door::Clients);
        (network, node, address)
    }

    fn read(stream: &mut TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        byte[0]
    }

    #[test]
    fn bytes_pass_both_ways_and_the_end_does_too() {
        let (_network, node, address) = network();
        let mut client = TcpStream::connect(address).expect("the proxy accepts");
        let (mut served, _) = node.accept().expect("passed on");
        client.write_all(b"a").expect("written");
        assert_eq!(read(&mut served), b'a');
        served.write_all(b"b").expect("written");
        assert_eq!(read(&mut client), b'b');
        drop(served);
        assert_eq!(client.read(&mut [0]).expect("no error"), 0);
    }

    #[test]
    fn one_way_can_be_cut_alone_and_what_was_sent_meanwhile_arrives_after() {
        let (mut network, node, address) = network();
        let mut client = TcpStream::connect(address).expect("the proxy accepts");
        let (mut served, _) = node.accept().expect("passed on");
        let cut = Weather { cut: [(HERE, THERE)].into(), ..Weather::default() };
        network.set(&cut).expect("set");
        client.write_all(b"a").expect("written");
        served.write_all(b"b").expect("written");
        assert_eq!(read(&mut client), b'b', "the way back is open");
        served.set_nonblocking(true).expect("a socket");
        let nothing = served.read(&mut [0]).expect_err("the way there is not");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        served.set_nonblocking(false).expect("a socket");
        network.set(&Weather::default()).expect("set");
        assert_eq!(read(&mut served), b'a');
    }

    #[test]
    fn no_connection_is_made_over_a_way_that_is_cut() {
        let (mut network, node, address) = network();
        let cut = Weather { cut: [(THERE, HERE)].into(), ..Weather::default() };
        network.set(&cut).expect("set");
        let mut client = TcpStream::connect(address).expect("the proxy accepts");
        node.set_nonblocking(true).expect("a socket");
        assert!(node.accept().is_err(), "a handshake needs both ways");
        node.set_nonblocking(false).expect("a socket");
        network.set(&Weather::default()).expect("set");
        let (mut served, _) = node.accept().expect("now it is passed on");
        client.write_all(b"a").expect("written");
        assert_eq!(read(&mut served), b'a');
    }
}
