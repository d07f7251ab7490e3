//! A client whose server is the fuzzer: anything may come back, at any time, and the connection
//! may break. No lease is believed for longer than it was asked for (T2), and nothing panics.

use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_client::test_util::ByHand;
use paxoslease_client::{AcquireError, LeaseGuard};
use paxoslease_core::Drift;

const STEPS_MAX: usize = 256;
const NAMES: [&str; 3] = ["x", "y", "z"];
const TTL: Duration = Duration::from_secs(1);

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Pass {
        millis: u8,
    },
    Hear(&'a [u8]),
    /// A grant that is well formed, with numbers that need not make sense.
    Grant(Granted),
    /// The same without a question, for a wish that was queued or for none.
    Push {
        id: u8,
        granted: Granted,
    },
    Number(i64),
    Queued,
    Break,
    Connect,
    Greet(&'a [u8]),
    Acquire {
        name: u8,
        wait: u8,
    },
    Abandon {
        name: u8,
    },
    Release {
        name: u8,
    },
    Look {
        what: u8,
    },
}

#[derive(Arbitrary, Debug)]
struct Granted {
    fence: u32,
    ttl: i64,
    waited: i64,
}

impl Granted {
    fn text(&self) -> String {
        let Self { fence, ttl, waited } = self;
        format!(":{fence}\r\n:{ttl}\r\n:{waited}\r\n")
    }
}

type Acquiring = Pin<Box<dyn Future<Output = Result<LeaseGuard, AcquireError>>>>;

/// What is wished for, held or over.
#[derive(Default)]
struct Seat {
    acquiring: Option<Acquiring>,
    lease: Option<LeaseGuard>,
}

/// What a server says, and what a client does meanwhile.
pub fn client(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut scene = ByHand::new(2);
    scene.connected_to(drift());
    let mut seats: [Seat; NAMES.len()] = Default::default();
    // Whoever looked has left; the answers come all the same.
    let mut lookers: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        let place = |name: u8| usize::from(name) % NAMES.len();
        match step {
            Step::Pass { millis } => scene.pass(Duration::from_millis(u64::from(millis) * 8)),
            Step::Hear(bytes) => hear(&mut scene, bytes),
            Step::Grant(granted) => {
                hear(&mut scene, format!("*3\r\n{}", granted.text()).as_bytes());
            }
            Step::Push { id, granted } => {
                let (id, text) = (id.to_string(), granted.text());
                let kind = "$13\r\nlease.granted";
                let push = format!(">5\r\n{kind}\r\n${}\r\n{id}\r\n{text}", id.len());
                hear(&mut scene, push.as_bytes());
            }
            Step::Number(number) => hear(&mut scene, format!(":{number}\r\n").as_bytes()),
            Step::Queued => hear(&mut scene, b"+QUEUED\r\n"),
            Step::Break => scene.disconnect(),
            Step::Connect => {
                scene.disconnect();
                scene.connected_to(drift());
            }
            Step::Greet(bytes) => {
                scene.disconnect();
                scene.greet(bytes);
            }
            Step::Acquire { name, wait } => {
                let wait = Duration::from_millis(u64::from(wait) * 16);
                let client = scene.client().clone();
                let name = place(name);
                seats[name].acquiring = Some(Box::pin(async move {
                    client.acquire(NAMES[name], TTL).wait(wait).into_future().await
                }));
            }
            Step::Abandon { name } => seats[place(name)].acquiring = None,
            Step::Release { name } => seats[place(name)].lease = None,
            Step::Look { what } => {
                lookers.truncate(8);
                lookers.push(look(&scene, what));
            }
        }
        lookers.retain_mut(|looker| poll(looker).is_none());
        for seat in &mut seats {
            if let Some(answer) = seat.acquiring.as_mut().and_then(poll) {
                seat.acquiring = None;
                seat.lease = answer.ok();
            }
            let remaining = seat.lease.as_ref().map_or(Duration::ZERO, LeaseGuard::remaining);
            assert!(remaining <= TTL, "T2: asked for {TTL:?}, and believed for {remaining:?}");
        }
        scene.turn();
        let said = scene.take_said();
        assert!(said.len() < 1 << 20, "{} bytes at once", said.len());
    }
}

fn hear(scene: &mut ByHand, bytes: &[u8]) {
    if scene.heard(bytes).is_err() {
        scene.disconnect();
    }
}

fn look(scene: &ByHand, what: u8) -> Pin<Box<dyn Future<Output = ()>>> {
    let client = scene.client().clone();
    let name = NAMES[usize::from(what) % NAMES.len()];
    // Whatever was seen is for nobody here.
    Box::pin(async move {
        match what % 4 {
            0 => drop(client.get(name).await),
            1 => drop(client.status().await),
            2 => drop(client.renew(name, u64::from(what) << 8 | 1, TTL).await),
            _ => {
                let mut list = client.list(name);
                while let Ok(Some(_)) = list.next().await {}
            }
        }
    })
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn drift() -> Drift {
    Drift::new(1000, Duration::from_millis(1)).expect("in bounds")
}
