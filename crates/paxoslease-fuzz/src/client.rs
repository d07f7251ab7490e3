//! A client whose server is the fuzzer: any bytes may arrive at any time, and the connection may
//! break. The client never believes in a lease for longer than the ttl it asked for (T2), and never
//! panics.

use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_client::test_util::ManualClient;
use paxoslease_client::{AcquireError, LeaseGuard};
use paxoslease_core::Drift;

const STEPS_MAX: usize = 256;
const NAMES: [&str; 3] = ["x", "y", "z"];
const TTL: Duration = Duration::from_secs(1);

#[derive(Arbitrary, Debug)]
enum ClientStep<'a> {
    Pass { millis: u8 },
    Receive(&'a [u8]),
    Grant(Granted),
    Push { id: u8, granted: Granted },
    Number(i64),
    Queued,
    Break,
    Connect,
    Greet(&'a [u8]),
    Acquire { name: u8, wait: u8 },
    Abandon { name: u8 },
    Release { name: u8 },
    Read { what: u8 },
}

/// A well-formed grant with arbitrary numbers.
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

/// The client's acquire and its lease for one name.
#[derive(Default)]
struct Slot {
    acquiring: Option<Acquiring>,
    lease: Option<LeaseGuard>,
}

/// The bytes of a server, and the actions of a client in between.
pub fn client(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut manual = ManualClient::new(2);
    manual.connected_to(drift());
    let mut slots: [Slot; NAMES.len()] = Default::default();
    // Reads whose results are ignored; their answers arrive all the same.
    let mut reads: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = ClientStep::arbitrary(&mut input) else { break };
        let place = |name: u8| usize::from(name) % NAMES.len();
        match step {
            ClientStep::Pass { millis } => {
                manual.advance(Duration::from_millis(u64::from(millis) * 8));
            }
            ClientStep::Receive(bytes) => receive(&mut manual, bytes),
            ClientStep::Grant(granted) => {
                receive(&mut manual, format!("*3\r\n{}", granted.text()).as_bytes());
            }
            // A grant as a push, for a queued acquire or for none.
            ClientStep::Push { id, granted } => {
                let (id, text) = (id.to_string(), granted.text());
                let kind = "$13\r\nlease.granted";
                let push = format!(">5\r\n{kind}\r\n${}\r\n{id}\r\n{text}", id.len());
                receive(&mut manual, push.as_bytes());
            }
            ClientStep::Number(number) => receive(&mut manual, format!(":{number}\r\n").as_bytes()),
            ClientStep::Queued => receive(&mut manual, b"+QUEUED\r\n"),
            ClientStep::Break => manual.disconnect(),
            ClientStep::Connect => {
                manual.disconnect();
                manual.connected_to(drift());
            }
            ClientStep::Greet(bytes) => {
                manual.disconnect();
                manual.greet(bytes);
            }
            ClientStep::Acquire { name, wait } => {
                let wait = Duration::from_millis(u64::from(wait) * 16);
                let client = manual.client().clone();
                let name = place(name);
                slots[name].acquiring = Some(Box::pin(async move {
                    client.acquire(NAMES[name], TTL).wait(wait).into_future().await
                }));
            }
            ClientStep::Abandon { name } => slots[place(name)].acquiring = None,
            ClientStep::Release { name } => slots[place(name)].lease = None,
            ClientStep::Read { what } => {
                reads.truncate(8);
                reads.push(read(&manual, what));
            }
        }
        reads.retain_mut(|read| poll(read).is_none());
        for slot in &mut slots {
            if let Some(answer) = slot.acquiring.as_mut().and_then(poll) {
                slot.acquiring = None;
                slot.lease = answer.ok();
            }
            let remaining = slot.lease.as_ref().map_or(Duration::ZERO, LeaseGuard::remaining);
            assert!(remaining <= TTL, "T2: asked for {TTL:?}, and believes for {remaining:?}");
        }
        manual.run();
        let sent = manual.take_sent();
        assert!(sent.len() < 1 << 20, "{} bytes at once", sent.len());
    }
}

fn receive(manual: &mut ManualClient, bytes: &[u8]) {
    if manual.receive(bytes).is_err() {
        manual.disconnect();
    }
}

fn read(manual: &ManualClient, what: u8) -> Pin<Box<dyn Future<Output = ()>>> {
    let client = manual.client().clone();
    let name = NAMES[usize::from(what) % NAMES.len()];
    // The results are ignored.
    Box::pin(async move {
        match what % 4 {
            0 => drop(client.get(name).await),
            1 => drop(client.status().await),
            2 => drop(client.renew(name, u64::from(what) << 8 | 1, TTL).await),
            _ => {
                let mut list = client.list(name);
                while let Some(Ok(_)) = list.next().await {}
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
