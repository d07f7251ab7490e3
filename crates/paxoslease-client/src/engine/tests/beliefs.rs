//! Whatever a server sends and whenever it sends it: the client believes in no lease for longer
//! than the requested ttl, counted from before its request left, less the drift (T2).

use std::future::IntoFuture as _;
use std::time::Duration;

use paxoslease_core::{Instant, Ttl};
use proptest::prelude::*;

use super::support::{FENCE, ManualClient, ManualFuture, drift, hello};
use crate::LeaseGuard;
use paxoslease_holder::AcquireError;

const TTL_MS: u32 = 1000;

fn belief_span() -> Duration {
    drift().belief_span(Ttl::from_millis(TTL_MS).expect("not zero"))
}

/// What the server, the network and the holders may do. `Answer` is for the oldest request, `Push`
/// for the last sending of an acquire, or for an earlier one.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Answer(ForgedReply),
    Push { name: usize, back: u64, reply: ForgedReply },
    Break,
    Connect,
    Acquire { name: usize, wait_ms: u64 },
    Release { name: usize },
}

/// `Yes` is a grant or a renewal.
#[derive(Clone, Copy, Debug)]
enum ForgedReply {
    Yes { ttl_ms: i64, waited_ms: i64 },
    Queued,
    No,
    NotHeld,
    NoQuorum,
    Stopping,
    Nonsense,
}

const NAMES: [&str; 3] = ["x", "y", "z"];

fn reply() -> impl Strategy<Value = ForgedReply> {
    let ttl_ms = prop_oneof![Just(i64::from(TTL_MS)), Just(i64::MAX), 0..5000_i64];
    let waited_ms = prop_oneof![Just(0), Just(i64::MAX), 0..5000_i64];
    let yes =
        (ttl_ms, waited_ms).prop_map(|(ttl_ms, waited_ms)| ForgedReply::Yes { ttl_ms, waited_ms });
    prop_oneof![
        8 => yes,
        2 => Just(ForgedReply::Queued),
        1 => Just(ForgedReply::No),
        1 => Just(ForgedReply::NotHeld),
        1 => Just(ForgedReply::NoQuorum),
        1 => Just(ForgedReply::Stopping),
        1 => Just(ForgedReply::Nonsense),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let wait_ms = || prop_oneof![Just(0), 0..3000_u64];
    let acquire = (name(), wait_ms()).prop_map(|(name, wait_ms)| Step::Acquire { name, wait_ms });
    prop_oneof![
        6 => (0..600_u64).prop_map(Step::Pass),
        9 => reply().prop_map(Step::Answer),
        2 => (name(), 0..3_u64, reply())
            .prop_map(|(name, back, reply)| Step::Push { name, back, reply }),
        1 => Just(Step::Break),
        2 => Just(Step::Connect),
        4 => acquire,
        1 => name().prop_map(|name| Step::Release { name }),
    ]
}

/// Knows everything that was sent, and computes from it how long the client may believe.
struct BeliefChecker {
    manual: ManualClient,
    is_connected: bool,
    names: [NameState; NAMES.len()],
    /// Requests without a reply, and when the client sent them.
    open: Vec<(String, Instant)>,
    grants: u64,
}

/// What the checker knows about one name.
#[derive(Default)]
struct NameState {
    asked: Option<ManualFuture<Result<LeaseGuard, AcquireError>>>,
    lease: Option<LeaseGuard>,
    /// When the client sent its last acquire, and its number, if it waits.
    last_acquire: Option<(Instant, Option<u64>)>,
    /// Fences that the server has granted.
    fences: Vec<u64>,
    /// The upper bound of every belief, by the replies so far.
    believed_until: Instant,
    was_over: bool,
}

impl BeliefChecker {
    fn new() -> Self {
        let (manual, names) = (ManualClient::connected(2), Default::default());
        Self { manual, is_connected: true, names, open: Vec::new(), grants: 0 }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Pass(millis) => self.manual.advance_ms(millis),
            Step::Answer(reply) => self.answer(reply),
            Step::Push { name, back, reply } => self.push(name, back, reply),
            Step::Break => self.disconnect(),
            Step::Connect if !self.is_connected => {
                self.manual.connect();
                self.is_connected = true;
            }
            Step::Connect => {}
            Step::Acquire { name, wait_ms } => self.acquire(name, wait_ms),
            Step::Release { name } => drop(self.names[name].lease.take()),
        }
        // A holder may call `is_held` before the client's thread runs, and after.
        self.check();
        self.collect_sent();
        self.check();
    }

    fn acquire(&mut self, name: usize, wait_ms: u64) {
        let state = &mut self.names[name];
        if state.asked.is_some() || state.lease.is_some() {
            return;
        }
        let ttl = Duration::from_millis(u64::from(TTL_MS));
        let wait = Duration::from_millis(wait_ms);
        let acquire = self.manual.client.acquire(NAMES[name], ttl).holder("me").wait(wait);
        state.asked = Some(ManualFuture::new(acquire.into_future()).begun());
        state.believed_until = Instant::ZERO;
    }

    fn disconnect(&mut self) {
        self.manual.engine.disconnected();
        self.is_connected = false;
        self.open.clear();
    }

    fn answer(&mut self, reply: ForgedReply) {
        if !self.is_connected || self.open.is_empty() {
            return;
        }
        let (request, sent_at) = self.open.remove(0);
        let mut words = request.split(' ');
        let (verb, name) = (words.next(), words.next());
        let name = name.and_then(|name| NAMES.iter().position(|known| *known == name));
        let reply = match (reply, verb, name) {
            (ForgedReply::Yes { ttl_ms, waited_ms }, Some("LEASE.ACQUIRE"), Some(name)) => {
                let fence = self.grant(name, sent_at, waited_ms);
                format!("*3\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n")
            }
            (ForgedReply::Yes { ttl_ms, .. }, Some("LEASE.RENEW"), Some(name)) => {
                self.extend(name, sent_at, 0);
                format!(":{ttl_ms}\r\n")
            }
            (ForgedReply::Yes { .. }, Some("PING"), _) => "+PONG\r\n".to_owned(),
            (ForgedReply::Yes { .. }, Some("HELLO"), _) => hello(1, &["n1:1"]),
            (ForgedReply::Yes { .. }, Some("LEASE.GET"), _) => "_\r\n".to_owned(),
            (reply, ..) => reply.line().to_owned(),
        };
        self.deliver(&reply);
    }

    fn push(&mut self, name: usize, back: u64, reply: ForgedReply) {
        let Some((sent_at, Some(number))) = self.names[name].last_acquire else { return };
        let number = number.saturating_sub(back);
        let push = match reply {
            ForgedReply::Yes { ttl_ms, waited_ms } => {
                // Only the last sending can begin a lease.
                let fence = match back {
                    0 => self.grant(name, sent_at, waited_ms),
                    _ => FENCE,
                };
                format!(
                    ">5\r\n+lease.granted\r\n:{number}\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n"
                )
            }
            ForgedReply::No => format!(">2\r\n+lease.timeout\r\n:{number}\r\n"),
            reply => format!(">2\r\n+lease.unheard\r\n{}", reply.line()),
        };
        if self.is_connected {
            self.deliver(&push);
        }
    }

    /// The server grants an acquire that was sent then. Returns the new fence.
    fn grant(&mut self, name: usize, sent_at: Instant, waited_ms: i64) -> u64 {
        self.extend(name, sent_at, waited_ms);
        self.grants += 1;
        let fence = FENCE + (self.grants << 10);
        self.names[name].fences.push(fence);
        fence
    }

    /// Raises the upper bound of the belief.
    fn extend(&mut self, name: usize, sent_at: Instant, waited_ms: i64) {
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        let waited = waited.min(self.manual.now().since(sent_at));
        let believed_until = sent_at.after(waited).after(belief_span());
        let state = &mut self.names[name];
        state.believed_until = state.believed_until.max(believed_until);
    }

    fn deliver(&mut self, bytes: &str) {
        if self.manual.try_reply(bytes).is_err() {
            self.disconnect();
        }
    }

    /// Records what the client sends, and lets the client leave its node.
    fn collect_sent(&mut self) {
        let now = self.manual.now();
        for sent in self.manual.sent() {
            if let Some(acquire) = sent.strip_prefix("LEASE.ACQUIRE ") {
                let number = sent.split_once("NOTIFY ").map(|(_, number)| number);
                let number = number.map(|number| number.parse().expect("a number"));
                let name = NAMES.iter().position(|name| acquire.starts_with(name)).expect("a name");
                self.names[name].last_acquire = Some((now, number));
            }
            self.open.push((sent, now));
        }
        // The client may read replies that were on their way before it leaves.
        if self.manual.engine.leave_reason().is_some() && self.open.is_empty() {
            self.disconnect();
        }
        for (state, name) in self.names.iter_mut().zip(NAMES) {
            let Some(answer) = state.asked.as_mut().and_then(ManualFuture::poll) else { continue };
            state.asked = None;
            state.was_over = false;
            let Ok(lease) = answer else { continue };
            assert!(lease.is_held(), "a lease that is over is not handed out");
            assert_eq!(lease.name(), name);
            assert!(state.fences.contains(&lease.fence()), "the fence of another name");
            state.lease = Some(lease);
        }
    }

    fn check(&mut self) {
        let now = self.manual.now();
        for state in &mut self.names {
            let Some(lease) = &state.lease else { continue };
            let is_held = lease.is_held();
            assert!(!is_held || now < state.believed_until, "believed at {now:?}");
            assert!(now.after(lease.remaining()) <= state.believed_until.max(now));
            assert!(!(is_held && state.was_over), "what was seen to be over is held again");
            state.was_over = !is_held;
        }
    }
}

impl ForgedReply {
    const fn line(self) -> &'static str {
        match self {
            Self::Yes { .. } => ":1\r\n",
            Self::Queued => "+QUEUED\r\n",
            Self::No => "_\r\n",
            Self::NotHeld => "-NOTHELD over\r\n",
            Self::NoQuorum => "-NOQUORUM alone\r\n",
            Self::Stopping => "-STOPPING soon\r\n",
            Self::Nonsense => "?nonsense\r\n",
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_lease_is_believed_longer_than_it_was_asked_for(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut checker = BeliefChecker::new();
        checker.run(Step::Acquire { name: 0, wait_ms: 0 });
        for step in steps {
            checker.run(step);
        }
    }
}
