//! Whatever a server says and whenever it says it, no lease is believed for longer than it was
//! asked for, counted from before its request left, less the drift (T2).

use std::future::IntoFuture as _;
use std::time::Duration;

use paxoslease_core::{Instant, Ttl};
use proptest::prelude::*;

use super::scene::{Asked, FENCE, Scene, drift};
use crate::LeaseGuard;
use paxoslease_holder::AcquireError;

const TTL_MS: u32 = 1000;

fn belief_span() -> Duration {
    drift().belief_span(Ttl::from_millis(TTL_MS).expect("not zero"))
}

/// What the server, the network and the holders may do. Holders are those of [`NAMES`].
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// The oldest question is answered so.
    Answer(Lie),
    /// Something comes that nobody asked for, about a wish or an earlier sending of it.
    Push {
        name: usize,
        back: u64,
        lie: Lie,
    },
    Break,
    Connect,
    Acquire {
        name: usize,
        wait_ms: u64,
    },
    Release {
        name: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A grant or a renewal, as worded.
    Yes {
        ttl_ms: i64,
        waited_ms: i64,
    },
    Queued,
    No,
    NotHeld,
    NoQuorum,
    Stopping,
    Nonsense,
}

const NAMES: [&str; 3] = ["x", "y", "z"];

fn lie() -> impl Strategy<Value = Lie> {
    let ttl_ms = prop_oneof![Just(i64::from(TTL_MS)), Just(i64::MAX), 0..5000_i64];
    let waited_ms = prop_oneof![Just(0), Just(i64::MAX), 0..5000_i64];
    let yes = (ttl_ms, waited_ms).prop_map(|(ttl_ms, waited_ms)| Lie::Yes { ttl_ms, waited_ms });
    prop_oneof![
        8 => yes,
        2 => Just(Lie::Queued),
        1 => Just(Lie::No),
        1 => Just(Lie::NotHeld),
        1 => Just(Lie::NoQuorum),
        1 => Just(Lie::Stopping),
        1 => Just(Lie::Nonsense),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let wait_ms = || prop_oneof![Just(0), 0..3000_u64];
    let acquire = (name(), wait_ms()).prop_map(|(name, wait_ms)| Step::Acquire { name, wait_ms });
    prop_oneof![
        6 => (0..600_u64).prop_map(Step::Pass),
        9 => lie().prop_map(Step::Answer),
        2 => (name(), 0..3_u64, lie()).prop_map(|(name, back, lie)| Step::Push { name, back, lie }),
        1 => Just(Step::Break),
        2 => Just(Step::Connect),
        4 => acquire,
        1 => name().prop_map(|name| Step::Release { name }),
    ]
}

/// Somebody who knows all that was said, and from that how long each lease may be believed.
struct Judge {
    scene: Scene,
    is_connected: bool,
    seats: [Seat; NAMES.len()],
    /// Questions not answered yet, and when they were said.
    open: Vec<(String, Instant)>,
    grants: u64,
}

/// What is known about one name.
#[derive(Default)]
struct Seat {
    asked: Option<Asked<Result<LeaseGuard, AcquireError>>>,
    lease: Option<LeaseGuard>,
    /// When the wish was said last, and the number it had, if any.
    wished: Option<(Instant, Option<u64>)>,
    /// Fences the server has spoken of.
    fences: Vec<u64>,
    /// Whatever is believed is over by then, as far as the answers so far go.
    believed_until: Instant,
    was_over: bool,
}

impl Judge {
    fn new() -> Self {
        let seats = Default::default();
        Self { scene: Scene::connected(2), is_connected: true, seats, open: Vec::new(), grants: 0 }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Pass(millis) => self.scene.pass_ms(millis),
            Step::Answer(lie) => self.answer(lie),
            Step::Push { name, back, lie } => self.push(name, back, lie),
            Step::Break => self.disconnect(),
            Step::Connect if !self.is_connected => {
                self.scene.connect();
                self.is_connected = true;
            }
            Step::Connect => {}
            Step::Acquire { name, wait_ms } => self.acquire(name, wait_ms),
            Step::Release { name } => drop(self.seats[name].lease.take()),
        }
        // A holder may look before the client's thread gets to run, and after.
        self.look();
        self.listen();
        self.look();
    }

    fn acquire(&mut self, name: usize, wait_ms: u64) {
        let seat = &mut self.seats[name];
        if seat.asked.is_some() || seat.lease.is_some() {
            return;
        }
        let ttl = Duration::from_millis(u64::from(TTL_MS));
        let wait = Duration::from_millis(wait_ms);
        let wish = self.scene.client.acquire(NAMES[name], ttl).holder("me").wait(wait);
        seat.asked = Some(Asked::new(wish.into_future()).begun());
        seat.believed_until = Instant::ZERO;
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
        let mut words = question.split(' ');
        let (verb, name) = (words.next(), words.next());
        let name = name.and_then(|name| NAMES.iter().position(|known| *known == name));
        let reply = match (lie, verb, name) {
            (Lie::Yes { ttl_ms, waited_ms }, Some("LEASE.ACQUIRE"), Some(name)) => {
                let fence = self.grant(name, sent_at, waited_ms);
                format!("*3\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n")
            }
            (Lie::Yes { ttl_ms, .. }, Some("LEASE.RENEW"), Some(name)) => {
                self.extend(name, sent_at, 0);
                format!(":{ttl_ms}\r\n")
            }
            (Lie::Yes { .. }, Some("PING"), _) => "+PONG\r\n".to_owned(),
            (Lie::Yes { .. }, Some("LEASE.GET"), _) => "_\r\n".to_owned(),
            (lie, ..) => lie.line().to_owned(),
        };
        self.hear(&reply);
    }

    fn push(&mut self, name: usize, back: u64, lie: Lie) {
        let Some((sent_at, Some(number))) = self.seats[name].wished else { return };
        let number = number.saturating_sub(back);
        let push = match lie {
            Lie::Yes { ttl_ms, waited_ms } => {
                // Only the latest sending can begin a lease.
                let fence = match back {
                    0 => self.grant(name, sent_at, waited_ms),
                    _ => FENCE,
                };
                format!(
                    ">5\r\n+lease.granted\r\n:{number}\r\n:{fence}\r\n:{ttl_ms}\r\n:{waited_ms}\r\n"
                )
            }
            Lie::No => format!(">2\r\n+lease.timeout\r\n:{number}\r\n"),
            lie => format!(">2\r\n+lease.unheard\r\n{}", lie.line()),
        };
        if self.is_connected {
            self.hear(&push);
        }
    }

    /// The server says that what was asked then is granted, under a fence of its own.
    fn grant(&mut self, name: usize, sent_at: Instant, waited_ms: i64) -> u64 {
        self.extend(name, sent_at, waited_ms);
        self.grants += 1;
        let fence = FENCE + (self.grants << 10);
        self.seats[name].fences.push(fence);
        fence
    }

    /// No more can be believed than this.
    fn extend(&mut self, name: usize, sent_at: Instant, waited_ms: i64) {
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        let waited = waited.min(self.scene.now().since(sent_at));
        let believed_until = sent_at.after(waited).after(belief_span());
        let seat = &mut self.seats[name];
        seat.believed_until = seat.believed_until.max(believed_until);
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
            if let Some(wish) = said.strip_prefix("LEASE.ACQUIRE ") {
                let number = said.split_once("NOTIFY ").map(|(_, number)| number);
                let number = number.map(|number| number.parse().expect("a number"));
                let name = NAMES.iter().position(|name| wish.starts_with(name)).expect("a name");
                self.seats[name].wished = Some((now, number));
            }
            self.open.push((said, now));
        }
        // It may go on reading what was on its way already.
        if self.scene.engine.wants_elsewhere().is_some() && self.open.is_empty() {
            self.disconnect();
        }
        for (seat, name) in self.seats.iter_mut().zip(NAMES) {
            let Some(answer) = seat.asked.as_mut().and_then(Asked::poll) else { continue };
            seat.asked = None;
            seat.was_over = false;
            let Ok(lease) = answer else { continue };
            assert!(lease.is_held(), "a lease that is over is not handed out");
            assert_eq!(lease.name(), name);
            assert!(seat.fences.contains(&lease.fence()), "{name} was granted to somebody else");
            seat.lease = Some(lease);
        }
    }

    fn look(&mut self) {
        let now = self.scene.now();
        for seat in &mut self.seats {
            let Some(lease) = &seat.lease else { continue };
            let is_held = lease.is_held();
            assert!(!is_held || now < seat.believed_until, "believed at {now:?}");
            assert!(now.after(lease.remaining()) <= seat.believed_until.max(now));
            assert!(!(is_held && seat.was_over), "what was seen to be over is held again");
            seat.was_over = !is_held;
        }
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
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut judge = Judge::new();
        judge.run(Step::Acquire { name: 0, wait_ms: 0 });
        for step in steps {
            judge.run(step);
        }
    }
}

#[test]
fn a_ttl_longer_than_asked_for_is_cut() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { name: 0, wait_ms: 0 });
    judge.run(Step::Answer(Lie::Yes { ttl_ms: i64::MAX, waited_ms: 0 }));
    let lease = judge.seats[0].lease.as_ref().expect("granted");
    assert_eq!(lease.remaining(), belief_span());
}

#[test]
fn a_wait_longer_than_time_has_passed_is_cut() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { name: 0, wait_ms: 0 });
    judge.run(Step::Pass(400));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: i64::MAX }));
    let lease = judge.seats[0].lease.as_ref().expect("granted");
    assert!(lease.remaining() < belief_span(), "{:?}", lease.remaining());
    assert!(lease.remaining() > belief_span() - Duration::from_millis(3));
}

#[test]
fn a_grant_whose_time_is_over_is_given_back_and_asked_for_again() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { name: 0, wait_ms: 0 });
    judge.run(Step::Pass(1000));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    assert!(judge.seats[0].lease.is_none());
    let released = format!("LEASE.RELEASE x {}", judge.seats[0].fences[0]);
    let said: Vec<&str> = judge.open.iter().map(|(said, _)| said.as_str()).collect();
    assert_eq!(said, [released.as_str(), "LEASE.ACQUIRE x 1000 HOLDER me"]);
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    assert!(judge.seats[0].lease.as_ref().is_some_and(LeaseGuard::is_held));
}

#[test]
fn an_answer_is_for_its_own_question_also_when_the_one_before_is_to_be_asked_elsewhere() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { name: 0, wait_ms: 0 });
    judge.run(Step::Acquire { name: 1, wait_ms: 0 });
    judge.run(Step::Answer(Lie::NoQuorum));
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    assert!(judge.seats[0].lease.is_none());
    assert!(judge.seats[1].lease.is_some());
    judge.run(Step::Connect);
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    assert!(judge.seats[0].lease.is_some());
}

#[test]
fn nothing_is_believed_after_an_answer_that_is_none() {
    let mut scene = Scene::connected(1);
    let wish = |name| {
        let ttl = Duration::from_millis(u64::from(TTL_MS));
        Asked::new(scene.client.try_acquire(name, ttl).into_future()).begun()
    };
    let (mut x, mut y) = (wish("x"), wish("y"));
    scene.said();
    scene.hear(&format!(":1\r\n*3\r\n:{FENCE}\r\n:1000\r\n:0\r\n"));
    assert!(x.poll().expect("answered").is_err());
    assert!(y.poll().is_none(), "whose grant that is, nobody knows");
    assert!(scene.engine.wants_elsewhere().is_some());
}

#[test]
fn an_answer_to_an_earlier_sending_begins_nothing() {
    let mut judge = Judge::new();
    judge.run(Step::Acquire { name: 0, wait_ms: 9000 });
    judge.run(Step::Pass(1000));
    judge.run(Step::Push { name: 0, back: 0, lie: Lie::Yes { ttl_ms: 1000, waited_ms: 0 } });
    assert!(judge.seats[0].lease.is_none(), "its time is over");
    let said: Vec<&str> = judge.open.iter().map(|(said, _)| &said[..8]).collect();
    assert_eq!(said, ["LEASE.AC", "LEASE.RE", "LEASE.AC"], "the first was not answered yet");
    judge.run(Step::Answer(Lie::Yes { ttl_ms: 1000, waited_ms: 0 }));
    assert!(judge.seats[0].lease.is_none());
}
