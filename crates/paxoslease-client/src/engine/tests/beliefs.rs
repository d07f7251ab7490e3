//! Whatever a server says and whenever it says it, no lease is believed for longer than it was
//! asked for, counted from before its request left, less the drift (T2).

use std::future::IntoFuture as _;
use std::time::Duration;

use paxoslease_core::{Instant, Rules, Ttl};
use proptest::prelude::*;

use super::scene::{Asked, FENCE, Scene, drift};
use crate::LeaseGuard;
use crate::error::AcquireError;

const TTL_MS: u32 = 1000;

fn belief_span() -> Duration {
    drift().belief_span(Rules::ALL, Ttl::from_millis(TTL_MS).expect("not zero"))
}

/// What the server, the network and the holder may do.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// The oldest question is answered so.
    Answer(Lie),
    /// Something comes that nobody asked for, about the latest wish or an earlier sending of it.
    Push {
        back: u64,
        lie: Lie,
    },
    Break,
    Connect,
    Acquire {
        wait_ms: u64,
    },
    Release,
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A grant or a renewal, as worded.
    Yes {
        ttl_ms: i64,
        waited_ms: i64,
        fence: u64,
    },
    Queued,
    No,
    NotHeld,
    NoQuorum,
    Stopping,
    Nonsense,
}

fn lie() -> impl Strategy<Value = Lie> {
    let ttl_ms = prop_oneof![Just(i64::from(TTL_MS)), Just(i64::MAX), 0..5000_i64];
    let waited_ms = prop_oneof![Just(0), Just(i64::MAX), 0..5000_i64];
    let yes = (ttl_ms, waited_ms, 0..3_u64).prop_map(|(ttl_ms, waited_ms, n)| {
        let fence = FENCE + (n << 10);
        Lie::Yes { ttl_ms, waited_ms, fence }
    });
    prop_oneof![
        6 => yes,
        2 => Just(Lie::Queued),
        1 => Just(Lie::No),
        1 => Just(Lie::NotHeld),
        1 => Just(Lie::NoQuorum),
        1 => Just(Lie::Stopping),
        1 => Just(Lie::Nonsense),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..600_u64).prop_map(Step::Pass),
        6 => lie().prop_map(Step::Answer),
        2 => (0..3_u64, lie()).prop_map(|(back, lie)| Step::Push { back, lie }),
        1 => Just(Step::Break),
        2 => Just(Step::Connect),
        2 => prop_oneof![Just(0), 0..3000_u64].prop_map(|wait_ms| Step::Acquire { wait_ms }),
        1 => Just(Step::Release),
    ]
}

/// Somebody who knows all that was said, and from that how long a lease may be believed.
struct Judge {
    scene: Scene,
    is_connected: bool,
    asked: Option<Asked<Result<LeaseGuard, AcquireError>>>,
    lease: Option<LeaseGuard>,
    /// Questions not answered yet, and when they were said.
    open: Vec<(String, Instant)>,
    /// When the wish was said last, and the number it had, if any.
    wished: Option<(Instant, Option<u64>)>,
    /// Whatever is believed is over by then, as far as the answers so far go.
    believed_until: Instant,
    was_over: bool,
}

impl Judge {
    fn new() -> Self {
        Self {
            scene: Scene::connected(2),
            is_connected: true,
            asked: None,
            lease: None,
            open: Vec::new(),
            wished: None,
            believed_until: Instant::ZERO,
            was_over: false,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Pass(millis) => self.scene.pass_ms(millis),
            Step::Answer(lie) => self.answer(lie),
            Step::Push { back, lie } => self.push(back, lie),
            Step::Break => self.disconnect(),
            Step::Connect if !self.is_connected => {
                self.scene.connect();
                self.is_connected = true;
            }
            Step::Acquire { wait_ms } if self.asked.is_none() && self.lease.is_none() => {
                let ttl = Duration::from_millis(u64::from(TTL_MS));
                let wait = Duration::from_millis(wait_ms);
                let wish = self.scene.client.acquire("x", ttl).holder("me").wait(wait);
                self.asked = Some(Asked::new(wish.into_future()).begun());
                self.believed_until = Instant::ZERO;
            }
            Step::Release => drop(self.lease.take()),
            Step::Connect | Step::Acquire { .. } => {}
        }
        // The holder may look before the client's thread gets to run, and after.
        self.look();
        self.listen();
        self.look();
    }

    fn disconnect(&mut self) {
        self.scene.engine.disconnected();
        self.is_connected = false;
        self.open.clear();
    }

    fn answer(&mut self, lie: Lie) {
        if !self.is_connected || self.open.is_empty() {
            return;
        }
        let (question, sent_at) = self.open.remove(0);
        let reply = match (lie, question.split(' ').next()) {
            (Lie::Yes { ttl_ms, waited_ms, fence }, Some("LEASE.ACQUIRE")) => {
                self.grant(sent_at, waited_ms);
                format!("*3\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n")
            }
            (Lie::Yes { ttl_ms, .. }, Some("LEASE.RENEW")) => {
                self.grant(sent_at, 0);
                format!(":{ttl_ms}\r\n")
            }
            (Lie::Yes { .. }, _) => ":1\r\n".to_owned(),
            (lie, _) => lie.line().to_owned(),
        };
        self.hear(&reply);
    }

    fn push(&mut self, back: u64, lie: Lie) {
        let Some((sent_at, Some(number))) = self.wished else { return };
        let number = number.saturating_sub(back);
        let push = match lie {
            Lie::Yes { ttl_ms, waited_ms, fence } => {
                if back == 0 {
                    self.grant(sent_at, waited_ms);
                }
                format!(
                    ">5\r\n+lease.granted\r\n:{number}\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n"
                )
            }
            Lie::No => format!(">2\r\n+lease.timeout\r\n:{number}\r\n"),
            lie => format!(">3\r\n+lease.refused\r\n:{number}\r\n{}", lie.line()),
        };
        if self.is_connected {
            self.hear(&push);
        }
    }

    /// The server says that what was asked then is granted: no more can be believed than this.
    fn grant(&mut self, sent_at: Instant, waited_ms: i64) {
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        let waited = waited.min(self.scene.now().since(sent_at));
        self.believed_until = self.believed_until.max(sent_at.after(waited).after(belief_span()));
    }

    fn hear(&mut self, bytes: &str) {
        if self.scene.try_hear(bytes).is_err() {
            self.disconnect();
        }
    }

    /// Hears what the client says, and lets it go where it wants.
    fn listen(&mut self) {
        let now = self.scene.now();
        for said in self.scene.said() {
            if said.starts_with("LEASE.ACQUIRE") {
                let number = said.split_once("NOTIFY ").map(|(_, number)| number);
                let number = number.map(|number| number.parse().expect("a number"));
                self.wished = Some((now, number));
            }
            self.open.push((said, now));
        }
        if self.scene.engine.wants_elsewhere().is_some() {
            self.disconnect();
        }
        if let Some(answer) = self.asked.as_mut().and_then(Asked::poll) {
            self.asked = None;
            self.was_over = false;
            self.lease = answer.ok();
            let is_held = self.lease.as_ref().is_none_or(LeaseGuard::is_held);
            assert!(is_held, "a lease that is over is not handed out");
        }
    }

    fn look(&mut self) {
        let Some(lease) = &self.lease else { return };
        let now = self.scene.now();
        let is_held = lease.is_held();
        assert!(!is_held || now < self.believed_until, "believed at {now:?}");
        assert!(now.after(lease.remaining()) <= self.believed_until.max(now));
        assert!(!(is_held && self.was_over), "what was seen to be over is held again");
        self.was_over = !is_held;
    }
}

impl Lie {
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
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut judge = Judge::new();
        judge.run(Step::Acquire { wait_ms: 0 });
        for step in steps {
            judge.run(step);
        }
    }
}

#[test]
fn a_ttl_longer_than_asked_for_is_cut() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { wait_ms: 0 });
    judge.run(Step::Answer(Lie::Yes { ttl_ms: i64::MAX, waited_ms: 0, fence: FENCE }));
    let lease = judge.lease.as_ref().expect("granted");
    assert_eq!(lease.remaining(), belief_span());
}

#[test]
fn a_wait_longer_than_time_has_passed_is_cut() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { wait_ms: 0 });
    judge.run(Step::Pass(400));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: i64::MAX, fence: FENCE }));
    let lease = judge.lease.as_ref().expect("granted");
    assert!(lease.remaining() < belief_span(), "{:?}", lease.remaining());
    assert!(lease.remaining() > belief_span() - Duration::from_millis(3));
}

#[test]
fn a_grant_whose_time_is_over_is_given_back_and_asked_for_again() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { wait_ms: 0 });
    judge.run(Step::Pass(1000));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0, fence: FENCE }));
    assert!(judge.lease.is_none());
    let said: Vec<&str> = judge.open.iter().map(|(said, _)| said.as_str()).collect();
    assert_eq!(
        said,
        [format!("LEASE.RELEASE x {FENCE}").as_str(), "LEASE.ACQUIRE x 1000 HOLDER me"]
    );
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0, fence: FENCE }));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0, fence: FENCE + (1 << 10) }));
    assert!(judge.lease.is_some_and(|lease| lease.is_held()));
}
