//! A network without root: everything on loopback, with a proxy between each place and each port of
//! a node.
//!
//! A proxy keeps bytes until the link is not cut any more, like a retransmission. A new connection
//! hangs while its link is cut. A lost packet costs time. Nothing is reordered, and nothing below
//! TCP changes.

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

use super::{Conditions, Interface, Link, Network, Place};
use crate::log::now;

/// The shortest retransmission timeout of TCP.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// The most bytes of one read.
const CHUNK: usize = 16_384;

/// The network conditions, and a signal for threads that wait for a change.
type SharedConditions = Arc<(Mutex<Conditions>, Condvar)>;

pub struct Loopback {
    conditions: SharedConditions,
    listen: BTreeMap<(u16, Interface), u16>,
    proxies: BTreeMap<(Place, u16, Interface), u16>,
}

impl Loopback {
    /// Makes a proxy for every port and every place that uses it.
    pub fn build(places: &[Place], seed: u64) -> Result<Self> {
        let mut loopback = Self {
            conditions: SharedConditions::default(),
            listen: BTreeMap::new(),
            proxies: BTreeMap::new(),
        };
        let nodes = places.iter().filter_map(|place| match place {
            Place::Node(id) => Some(*id),
            Place::Clients(_) => None,
        });
        let interfaces: Vec<(u16, Interface)> =
            nodes.flat_map(|node| Interface::ALL.map(|interface| (node, interface))).collect();
        // All listeners are open at once, so that no port is used twice.
        let held: Vec<TcpListener> =
            interfaces.iter().map(|_| any_port()).collect::<Result<_>>()?;
        for (interface, listener) in interfaces.iter().zip(&held) {
            loopback.listen.insert(*interface, listener.local_addr()?.port());
        }
        for from in places {
            for (node, interface) in &interfaces {
                let listener = any_port()?;
                let port = listener.local_addr()?.port();
                let target = (Ipv4Addr::LOCALHOST, loopback.listen[&(*node, *interface)]).into();
                let link = (*from, Place::Node(*node));
                let rng = Rng::new(seed, u64::from(port));
                let conditions = Arc::clone(&loopback.conditions);
                spawn(move || accept(&listener, target, link, &conditions, rng))?;
                loopback.proxies.insert((*from, *node, *interface), port);
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

    fn listen(&self, node: u16, interface: Interface) -> String {
        format!("127.0.0.1:{}", self.listen[&(node, interface)])
    }

    fn address(&self, from: Place, node: u16, interface: Interface) -> String {
        format!("127.0.0.1:{}", self.proxies[&(from, node, interface)])
    }

    fn command(&self, _place: Place, program: &Path) -> Command {
        Command::new(program)
    }

    fn set(&mut self, conditions: &Conditions) -> Result<()> {
        *self.conditions.0.lock().unwrap_or_else(PoisonError::into_inner) = conditions.clone();
        self.conditions.1.notify_all();
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

fn accept(
    listener: &TcpListener,
    target: SocketAddr,
    link: Link,
    conditions: &SharedConditions,
    mut rng: Rng,
) {
    for near in listener.incoming().flatten() {
        let (conditions, seed) = (Arc::clone(conditions), rng.bits());
        // Without a thread the connection is closed, and the client tries again.
        let _refused = spawn(move || {
            let back = (link.1, link.0);
            pass(&conditions, link, &mut Rng::new(seed, 0));
            pass(&conditions, back, &mut Rng::new(seed, 1));
            let Ok(far) = TcpStream::connect(target) else { return };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
            let conditions_too = Arc::clone(&conditions);
            let _refused =
                spawn(move || copy(&far_too, &near_too, back, &conditions_too, seed ^ 2));
            copy(&near, &far, link, &conditions, seed ^ 3);
        });
    }
}

fn copy(
    mut from: &TcpStream,
    mut to: &TcpStream,
    link: Link,
    conditions: &SharedConditions,
    seed: u64,
) {
    let mut rng = Rng::new(seed, 0);
    let mut buffer = vec![0; CHUNK];
    let _latency_only = to.set_nodelay(true);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        pass(conditions, link, &mut rng);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The end of a stream may be late, but is not kept: its receiver could be gone.
    let _gone = to.shutdown(Shutdown::Both);
    let _gone = from.shutdown(Shutdown::Both);
}

/// Waits until a packet that is sent now would have arrived.
fn pass((conditions, changed): &(Mutex<Conditions>, Condvar), (from, to): Link, rng: &mut Rng) {
    let mut guard = conditions.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn network() -> (Loopback, TcpListener, String) {
        let network = Loopback::build(&[THERE, HERE], 1).expect("loopback");
        let node = TcpListener::bind(network.listen(1, Interface::Clients)).expect("its own port");
        let address = network.address(HERE, 1, Interface::Clients);
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
    fn one_direction_can_be_cut_and_its_bytes_arrive_later() {
        let (mut network, node, address) = network();
        let mut client = TcpStream::connect(address).expect("the proxy accepts");
        let (mut served, _) = node.accept().expect("passed on");
        let cut = Conditions { cut: [(HERE, THERE)].into(), ..Conditions::default() };
        network.set(&cut).expect("set");
        client.write_all(b"a").expect("written");
        served.write_all(b"b").expect("written");
        assert_eq!(read(&mut client), b'b', "the way back is open");
        served.set_nonblocking(true).expect("a socket");
        let nothing = served.read(&mut [0]).expect_err("the way there is not");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        served.set_nonblocking(false).expect("a socket");
        network.set(&Conditions::default()).expect("set");
        assert_eq!(read(&mut served), b'a');
    }

    #[test]
    fn no_connection_is_made_over_a_way_that_is_cut() {
        let (mut network, node, address) = network();
        let cut = Conditions { cut: [(THERE, HERE)].into(), ..Conditions::default() };
        network.set(&cut).expect("set");
        let mut client = TcpStream::connect(address).expect("the proxy accepts");
        node.set_nonblocking(true).expect("a socket");
        assert!(node.accept().is_err(), "a handshake needs both ways");
        node.set_nonblocking(false).expect("a socket");
        network.set(&Conditions::default()).expect("set");
        let (mut served, _) = node.accept().expect("now it is passed on");
        client.write_all(b"a").expect("written");
        assert_eq!(read(&mut served), b'a');
    }
}
