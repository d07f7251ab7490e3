//! Each check fails when it should, and only then.

use proptest::prelude::*;

use super::*;
use crate::log::{
    AcquireRequest, Belief, EndReason, EventKind, Kind, NodeState, Operation, Phase, TenureId,
};

const SECOND: Nanos = 1_000_000_000;

#[derive(Default)]
struct History(Vec<Event>);

impl History {
    fn tell(mut self, at: Nanos, what: EventKind) -> Self {
        self.0.push(Event { at, what });
        self
    }

    fn asked(self, client: &str, attempt: u64, at: Nanos, wait_ms: u64) -> Self {
        self.tell(at, EventKind::Asked(ask(client, attempt, wait_ms)))
    }

    fn held(self, client: &str, attempt: u64, fence: u64, from: Nanos, until: Nanos) -> Self {
        let (client, name, kind) = (client.to_owned(), "a".to_owned(), Kind::Resp);
        let belief = Belief { client, kind, name, attempt, fence, from, until, renewals: 0 };
        self.tell(from, EventKind::Held(belief))
    }

    fn ended(self, client: &str, fence: u64, at: Nanos, why: EndReason) -> Self {
        self.tell(at, EventKind::Ended { tenure: tenure(client, fence), why })
    }

    fn released(self, client: &str, fence: u64, at: Nanos) -> Self {
        self.tell(at, EventKind::ReleaseAcknowledged(tenure(client, fence)))
    }

    fn denied(self, client: &str, attempt: u64, (asked_at, at): (Nanos, Nanos), by: u64) -> Self {
        let ask = ask(client, attempt, 0);
        let fence = (by > 0).then_some(by);
        self.asked(client, attempt, asked_at, 0)
            .tell(at, EventKind::Denied { ask, asked_at, fence })
    }

    fn write(self, client: &str, fence: u64, at: Nanos, accepted: bool) -> Self {
        let (client, name) = (client.to_owned(), "a".to_owned());
        self.tell(at, EventKind::Write { client, name, fence, accepted, highest: 0 })
    }

    fn fault(self, id: u64, from: Nanos, to: Nanos) -> Self {
        self.fault_at(id, &[1], from, to)
    }

    fn fault_at(self, id: u64, nodes: &[u16], from: Nanos, to: Nanos) -> Self {
        let fault = |phase| {
            let (what, whom, nodes) = ("kill".to_owned(), "a node".to_owned(), nodes.to_vec());
            EventKind::Fault { id, what, whom, nodes, phase }
        };
        self.tell(from, fault(Phase::Begin)).tell(to, fault(Phase::End))
    }

    fn failed(self, client: &str, at: Nanos) -> Self {
        let (operation, why) = (Operation::Acquire, "no answer".to_owned());
        self.tell(at, EventKind::Failed { ask: ask(client, 1, 0), operation, why })
    }

    fn healed(self, at: Nanos, bound: Nanos) -> Self {
        self.tell(at, EventKind::Healed { bound })
    }

    fn node(self, id: u16, at: Nanos, state: NodeState) -> Self {
        self.tell(at, EventKind::Node { id, state })
    }

    /// Client x asks at 20 s, ends its belief at 21 s and has a confirmed release at 22 s.
    fn x_releases_at_22_s(self) -> Self {
        let held = self.asked("x", 1, 20 * SECOND, 0).held("x", 1, 1, 20 * SECOND, 30 * SECOND);
        held.ended("x", 1, 21 * SECOND, EndReason::Released).released("x", 1, 22 * SECOND)
    }

    fn over(
        self,
        client: &str,
        fence: u64,
        operation: Operation,
        (asked_at, at): (Nanos, Nanos),
    ) -> Self {
        self.tell(at, EventKind::Over { tenure: tenure(client, fence), operation, asked_at })
    }

    fn began(self, client: &str, at: Nanos, through: Option<u16>) -> Self {
        let (client, kind) = (client.to_owned(), Kind::Resp);
        self.tell(at, EventKind::Began { client, kind, seed: 1, through })
    }

    fn judge(mut self) -> Verdict {
        self.0.sort_by_key(|event| event.at);
        // Histories are short, and most have long times without a grant.
        judge(&self.0, Bounds { idle: Duration::from_secs(86_400), ..Bounds::default() })
    }

    fn rules(self) -> Vec<Rule> {
        self.judge().violations.iter().map(|violation| violation.rule).collect()
    }
}

/// The first tenure of a client.
fn tenure(client: &str, fence: u64) -> TenureId {
    TenureId { client: client.to_owned(), name: "a".to_owned(), attempt: 1, fence }
}

fn ask(client: &str, attempt: u64, wait_ms: u64) -> AcquireRequest {
    let (client, name) = (client.to_owned(), "a".to_owned());
    AcquireRequest { client, kind: Kind::Resp, name, attempt, ttl_ms: 1000, wait_ms }
}

fn history() -> History {
    History::default()
}

#[test]
fn beliefs_that_meet_are_found_to_the_nanosecond() {
    let verdict = history().held("x", 1, 1, 10, 20).held("y", 1, 2, 17, 30).judge();
    let [violation] = &verdict.violations[..] else { panic!("{:?}", verdict.violations) };
    assert_eq!(violation.rule, Rule::OneHolder);
    assert!(violation.text.contains("[10, 20)"), "{}", violation.text);
    assert!(violation.text.contains("[17, 30)"), "{}", violation.text);
    assert!(violation.text.contains("both for 3 ns"), "{}", violation.text);
    assert_eq!(violation.evidence.len(), 2);
    assert_eq!(history().held("x", 1, 1, 10, 20).held("y", 1, 2, 20, 30).rules(), []);
}

#[test]
fn a_renewal_extends_a_belief_and_an_end_cuts_it() {
    let renewed = || history().held("x", 1, 1, 10, 20).held("x", 1, 1, 10, 40);
    assert_eq!(renewed().held("y", 1, 2, 30, 50).rules(), [Rule::OneHolder]);
    let ended = renewed().ended("x", 1, 30, EndReason::Released);
    assert_eq!(ended.held("y", 1, 2, 30, 50).rules(), []);
    let late = renewed().ended("x", 1, 31, EndReason::Lost);
    assert_eq!(late.held("y", 1, 2, 30, 50).rules(), [Rule::OneHolder]);
}

#[test]
fn a_crash_frees_nothing() {
    let crashed = history().held("x", 1, 1, 10, 40).ended("x", 1, 20, EndReason::Crashed);
    assert_eq!(crashed.held("y", 1, 2, 30, 50).rules(), [Rule::OneHolder]);
}

#[test]
fn a_long_belief_meets_more_than_its_neighbour() {
    let met = history().held("x", 1, 1, 10, 90).held("y", 1, 2, 20, 30).held("z", 1, 3, 40, 50);
    assert_eq!(met.rules(), [Rule::OneHolder, Rule::OneHolder]);
}

#[test]
fn fences_rise_from_belief_to_belief() {
    let falls = history().held("x", 1, 5, 10, 20).held("y", 1, 4, 30, 40).held("z", 1, 6, 50, 60);
    assert_eq!(falls.rules(), [Rule::FencesRise]);
    // A grant that arrives too late gives no belief, so its order does not count.
    let late = history().held("x", 1, 5, 10, 20).held("y", 1, 4, 30, 30);
    assert_eq!(late.rules(), []);
}

#[test]
fn a_fence_belongs_to_one_grant() {
    let shared = history().held("x", 1, 5, 10, 20).held("y", 1, 5, 30, 40);
    assert_eq!(shared.rules(), [Rule::FencesAreUnique]);
    let again = history().held("x", 1, 5, 10, 20).held("x", 2, 5, 30, 40);
    assert_eq!(again.rules(), [Rule::FencesAreUnique]);
    let late = history().held("x", 1, 5, 10, 20).held("y", 1, 5, 30, 30);
    assert_eq!(late.rules(), [Rule::FencesAreUnique]);
}

#[test]
fn a_stale_write_that_was_taken_is_found() {
    let writes = |accepted| {
        let held = history().held("x", 1, 1, 10, 20).held("y", 1, 2, 30, 40);
        held.write("x", 1, 15, true).write("y", 2, 35, true).write("x", 1, 36, accepted)
    };
    assert_eq!(writes(true).rules(), [Rule::StaleWritesAreRefused]);
    assert_eq!(writes(false).rules(), []);
}

#[test]
fn a_holder_that_may_not_write_is_found() {
    let held = || history().held("x", 1, 1, 10, 20).held("y", 1, 2, 30, 40);
    let refused = held().write("y", 2, 35, true).write("y", 2, 36, false);
    assert_eq!(refused.rules(), [Rule::HoldersMayWrite], "refused for no reason");
    let raced = held().write("y", 2, 12, true).write("x", 1, 15, false);
    assert_eq!(raced.rules(), [Rule::HoldersMayWrite], "refused because another was first");
}

#[test]
fn a_denial_by_a_tenure_that_was_given_back_is_found() {
    let released = || {
        let held = history().asked("x", 1, 5, 0).held("x", 1, 1, 10, 40);
        held.ended("x", 1, 20, EndReason::Released).released("x", 1, 25)
    };
    assert_eq!(released().denied("y", 1, (26, 27), 1).rules(), [Rule::ReleasesAreKept]);
    assert_eq!(released().denied("y", 1, (24, 27), 1).rules(), [], "asked before");
    assert_eq!(released().denied("y", 1, (26, 27), 9).rules(), [], "of another client");
}

#[test]
fn an_unexplained_denial_without_a_fault_is_found() {
    let released = || history().x_releases_at_22_s();
    let denied = |history: History| history.denied("y", 1, (23 * SECOND, 24 * SECOND), 0).rules();
    assert_eq!(denied(released()), [Rule::ReleasesAreKept]);
    assert_eq!(denied(released().fault(1, 5 * SECOND, 14 * SECOND)), []);
    let other = released().asked("z", 1, 22 * SECOND, 0);
    assert_eq!(denied(other.held("z", 1, 2, 23 * SECOND, 24 * SECOND)), [], "z held it");
    let left = released().asked("z", 1, 15 * SECOND, 0).failed("z", 19 * SECOND);
    assert_eq!(denied(left), [], "z may have left something behind");
}

#[test]
fn a_name_given_back_that_a_waiter_does_not_get_is_found() {
    let waited = |granted: Nanos| {
        let waits = history().x_releases_at_22_s().asked("y", 1, 20 * SECOND, 60_000);
        let granted = waits.held("y", 1, 2, granted * SECOND, 40 * SECOND);
        granted.ended("y", 2, 41 * SECOND, EndReason::Lost)
    };
    assert_eq!(waited(30).rules(), [Rule::ReleasedIsAvailable]);
    assert_eq!(waited(24).rules(), []);
    assert_eq!(waited(30).fault(1, 13 * SECOND, 14 * SECOND).rules(), []);
    let early = waited(30).asked("z", 1, 20 * SECOND, 60_000);
    let early = early.held("z", 1, 3, 21 * SECOND + 1, 30 * SECOND);
    let rules = early.ended("z", 3, 30 * SECOND, EndReason::Lost).rules();
    assert!(!rules.contains(&Rule::ReleasedIsAvailable), "granted before: {rules:?}");
    assert_eq!(waited(24).judge().judged.releases, 1);
    assert_eq!(waited(24).judge().judged.longest_wait, 2 * SECOND);
    let asked_by_the_dead = waited(30).asked("z", 1, 21 * SECOND, 0);
    assert_eq!(asked_by_the_dead.rules(), [], "z may have left something behind");
    let lock = EventKind::Asked(AcquireRequest { kind: Kind::Lock, ..ask("z", 1, 60_000) });
    let starting = waited(30).tell(19 * SECOND, lock).held("z", 1, 3, 41 * SECOND, 42 * SECOND);
    assert_eq!(starting.rules(), [], "z may have had it, and not yet said so");
}

#[test]
fn a_name_that_is_not_granted_after_healing_is_found() {
    let healed = |granted: Nanos| {
        let asked = history().fault(1, 1, 5).healed(10, 20);
        let asked = asked.asked("x", 1, 12, 60_000).held("x", 1, 1, granted, 90);
        asked.ended("x", 1, 95, EndReason::Expired)
    };
    assert_eq!(healed(40).rules(), [Rule::HealedIsGranted]);
    assert_eq!(healed(30).rules(), []);
    assert_eq!(healed(40).fault(2, 25, 26).rules(), [], "broken again");
    let without_request = history().fault(1, 1, 5).healed(10, 20);
    assert_eq!(without_request.asked("x", 1, 29, 0).held("x", 1, 1, 40, 90).rules(), []);
    let judged = healed(30).judge().judged;
    assert_eq!((judged.healings, judged.names), (1, 1));
}

#[test]
fn a_node_that_grants_nothing_after_healing_is_found() {
    let started = |history: History, id| history.node(id, 1, NodeState::Started);
    let healed = || {
        let began = started(started(history(), 1), 2).began("x", 2, Some(1));
        let served = began.held("x", 1, 1, 12, 14).released("x", 1, 15).began("y", 2, Some(2));
        served.held("y", 1, 2, 16, 90).healed(10, 20)
    };
    let at_last = |history: History| history.ended("z", 9, 100, EndReason::Lost);
    let verdict = at_last(healed()).judge();
    let [violation] = &verdict.violations[..] else { panic!("{:?}", verdict.violations) };
    assert_eq!((violation.rule, &*violation.name), (Rule::EveryNodeServes, "node 2"));
    assert_eq!(verdict.judged.nodes, 2);
    assert_eq!(at_last(healed().released("y", 2, 30)).rules(), []);
    assert_eq!(at_last(healed().released("y", 2, 31)).rules(), [Rule::EveryNodeServes], "late");
    let without_client = at_last(started(healed().released("y", 2, 30), 3)).rules();
    assert_eq!(without_client, [Rule::EveryNodeServes], "a node without requests is judged");
    assert_eq!(at_last(healed().fault(1, 20, 21)).rules(), [], "broken again");
}

#[test]
fn a_client_that_hangs_is_found() {
    let silence = 15 * SECOND;
    let healed = || history().began("x-1.1.1", 1, None).healed(10, 20);
    let at_last = |history: History| history.write("w", 1, silence + 11, true).rules();
    assert_eq!(at_last(healed()), [Rule::ClientsAreHeard]);
    assert_eq!(at_last(healed().asked("x-1.1.1", 1, 9, 0)), [Rule::ClientsAreHeard]);
    assert_eq!(at_last(healed().began("x-1.2.1", 40, None)), [], "another worker of it speaks");
    assert_eq!(at_last(healed().began("x-2.1.1", 40, None)), [Rule::ClientsAreHeard]);
    assert_eq!(at_last(healed().fault(1, 50, 60)), [], "something was broken again");
}

#[test]
fn a_lease_that_the_cell_forgot_is_found() {
    let held = || history().held("x", 1, 1, 20 * SECOND, 30 * SECOND);
    let told = |operation, at: Nanos| held().over("x", 1, operation, (22 * SECOND, at)).rules();
    assert_eq!(told(Operation::Renew, 30 * SECOND - 1), [Rule::LeasesAreKept]);
    assert_eq!(told(Operation::Renew, 30 * SECOND), [], "the belief was over");
    assert_eq!(told(Operation::Release, 23 * SECOND), [Rule::LeasesAreKept]);
    let over = |operation| held().over("x", 1, operation, (22 * SECOND, 23 * SECOND));
    let broken = |operation| over(operation).fault(1, 13 * SECOND, 14 * SECOND).rules();
    assert_eq!(broken(Operation::Release), [], "a confirmation may have been lost");
    assert_eq!(broken(Operation::Renew), [Rule::LeasesAreKept], "no fault excuses that");
    let ended = over(Operation::Renew).ended("x", 1, 23 * SECOND, EndReason::Lost);
    assert_eq!(ended.rules(), [Rule::LeasesAreKept], "whatever the holder made of it");
}

#[test]
fn a_long_time_without_a_grant_is_found_where_nothing_is_broken() {
    let granted = |second: Nanos| {
        let held = history().held("x", 1, 1, SECOND, SECOND + 1);
        held.held("x", 2, 2, second * SECOND, second * SECOND + 1)
    };
    let rules = |mut history: History| -> Vec<Rule> {
        history.0.sort_by_key(|event| event.at);
        let violations = judge(&history.0, Bounds::default()).violations;
        violations.iter().map(|violation| violation.rule).collect()
    };
    assert_eq!(rules(granted(4)), []);
    assert_eq!(rules(granted(5)), [Rule::HealthyIsGranted]);
    assert_eq!(rules(granted(12).fault(1, 2 * SECOND, 3 * SECOND)), [], "it settles");
    let stalled = EventKind::Stalled { from: 2 * SECOND };
    assert_eq!(rules(granted(5).tell(3 * SECOND, stalled)), [], "the machine stood still");
}

#[test]
fn only_a_complete_run_has_to_show_enough() {
    let told = || history().began("x", 1, None).held("x", 1, 1, 10, 20);
    assert_eq!(told().rules(), []);
    let texts: Vec<String> =
        told().tell(30, EventKind::Closed).judge().violations.into_iter().map(|v| v.text).collect();
    let lacks = |what: &str| texts.iter().any(|text| text.starts_with(what));
    assert!(lacks("no release with a waiter could be judged"), "{texts:?}");
    assert!(lacks("no node that had to serve"), "{texts:?}");
    assert!(lacks("nothing was renewed by resp") && lacks("nothing was released"), "{texts:?}");
    assert!(!lacks("nothing was granted by resp"), "{texts:?}");
}

#[test]
fn what_happens_after_the_end_of_a_run_is_not_waited_for() {
    let waits = history().asked("x", 1, 12, 0).healed(10, 20);
    let rules = waits.tell(25, EventKind::Closed).write("w", 1, 90, true).rules();
    assert!(!rules.contains(&Rule::HealedIsGranted), "{rules:?}");
}

#[test]
fn an_end_logged_before_its_begin_counts() {
    // It was granted at 20, and its time was over at 15.
    let late = history().healed(15, 1).held("x", 1, 1, 20, 15);
    let verdict = late.ended("x", 1, 15, EndReason::Expired).judge();
    assert_eq!(verdict.tenures[0].end, Some(EndReason::Expired));
    assert_eq!((verdict.counts.total().lost, verdict.counts.total().crashed), (1, 0));
}

#[test]
fn only_names_that_several_held_are_counted_as_compared() {
    let alone = history().held("x", 1, 1, 10, 20).released("x", 1, 15).held("x", 2, 2, 30, 40);
    assert_eq!(alone.judge().counts.uncontended, (2, 1));
    let met = history().held("x", 1, 1, 10, 20).released("x", 1, 15).held("y", 1, 2, 30, 40);
    let counts = met.judge().counts;
    assert_eq!((counts.contended, counts.uncontended), ((2, 1), (0, 0)));
}

#[test]
fn a_fault_in_steps_is_one_and_a_stall_is_none() {
    let stalled = history().tell(90, EventKind::Stalled { from: 80 });
    let health = stalled.fault(1, 10, 20).fault(1, 30, 40).fault(2, 50, 60).judge().health;
    assert_eq!(health.counts(), (2, 1));
    assert!(!health.is_well(25, 25), "between its steps it is not over");
    assert!(health.is_well(61, 79) && !health.is_well(85, 85));
}

#[test]
fn what_a_fault_did_is_counted() {
    let history = history().fault(1, 30, 50).failed("x", 35).failed("x", 60);
    let verdict = history.node(1, 40, NodeState::Died).judge();
    assert_eq!((verdict.gaps[0].failed, verdict.gaps[0].died), (1, 1));
}

#[test]
fn gaps_are_told_by_kind_of_fault() {
    let verdict =
        history().held("x", 1, 1, 10, 20).fault(1, 30, 50).held("y", 1, 2, 60, 70).judge();
    let kinds: Vec<_> = verdict.gaps.iter().map(|gaps| gaps.what.as_deref()).collect();
    assert_eq!(kinds, [None, Some("kill")]);
    let gap = verdict.gaps[1].longest_alone().expect("one fault, alone");
    assert_eq!((gap.from, gap.to, gap.span), (30, 60, 30));
    let well = verdict.gaps[0].longest().expect("two stretches");
    assert_eq!((well.from, well.to), (10, 30), "what the fault does is not counted here");
}

#[test]
fn a_gap_of_two_faults_belongs_to_neither_alone() {
    let kinds = |second: Nanos| {
        let history =
            history().held("x", 1, 1, 10, 20).fault(1, 30, 50).fault(2, second, second + 5);
        let verdict = history.held("y", 1, 2, 60, 70).judge();
        verdict.gaps[1].gaps.iter().filter(|gap| gap.is_alone).count()
    };
    assert_eq!(kinds(40), 0, "at once");
    assert_eq!(kinds(55), 0, "before the next grant");
    assert_eq!(kinds(65), 1, "after it, but too soon for the second");
}

/// A correct history of one name: tenures one after another, with rising fences.
fn lawful() -> impl Strategy<Value = Vec<(Nanos, Nanos, u64)>> {
    let step = (1..50_u64, 1..100_u64, 1..9_u64);
    prop::collection::vec(step, 2..12).prop_map(|steps| {
        let (mut at, mut fence) = (0, 0);
        let mut tenures = Vec::new();
        for (pause, span, rise) in steps {
            at += pause;
            fence += rise;
            tenures.push((at, at + span, fence));
            at += span;
        }
        tenures
    })
}

fn told(tenures: &[(Nanos, Nanos, u64)]) -> History {
    tenures.iter().enumerate().fold(history(), |history, (place, (from, until, fence))| {
        let client = format!("c{place}");
        history.held(&client, 1, *fence, *from, *until).write(&client, *fence, *from, true)
    })
}

proptest! {
    #[test]
    fn a_lawful_run_has_no_violation(tenures in lawful()) {
        prop_assert_eq!(told(&tenures).rules(), []);
    }

    #[test]
    fn two_beliefs_that_meet_anywhere_are_found(
        spans in prop::collection::vec((0..200_u64, 0..40_u64), 1..12),
    ) {
        let met = spans.iter().enumerate().any(|(place, (from, span))| {
            let meets = |(other, long): &(u64, u64)| {
                let ends = (from + span).min(other + long);
                *from.max(other) < ends
            };
            spans[place + 1..].iter().any(meets)
        });
        let tenures: Vec<_> = spans.iter().map(|(from, span)| (*from, from + span)).collect();
        let history = tenures.iter().enumerate().fold(history(), |history, (place, (from, until))| {
            history.held(&format!("c{place}"), 1, place as u64 + 1, *from, *until)
        });
        prop_assert_eq!(history.rules().contains(&Rule::OneHolder), met);
    }

    #[test]
    fn any_belief_made_longer_than_lawful_is_found(
        tenures in lawful(), which in any::<prop::sample::Index>(), more in 1..1000_u64,
    ) {
        let mut tenures = tenures;
        let which = which.index(tenures.len() - 1);
        tenures[which].1 = tenures[which + 1].0 + more;
        prop_assert!(told(&tenures).rules().contains(&Rule::OneHolder));
    }

    #[test]
    fn any_two_fences_swapped_are_found(
        tenures in lawful(), which in any::<prop::sample::Index>(),
    ) {
        let mut tenures = tenures;
        let which = which.index(tenures.len() - 1);
        (tenures[which].2, tenures[which + 1].2) = (tenures[which + 1].2, tenures[which].2);
        let rules = told(&tenures).rules();
        prop_assert!(rules.contains(&Rule::FencesRise), "{:?}", rules);
        prop_assert!(rules.contains(&Rule::StaleWritesAreRefused), "{:?}", rules);
    }
}

/// Three nodes, each with a client that uses this node only and gets a grant every second until
/// `until`.
fn probed(until: Nanos) -> History {
    let mut history =
        (1..=3).fold(history(), |history, id| history.node(id, 1, NodeState::Started));
    for id in 1..=3u16 {
        let client = format!("p-{id}");
        history = history.began(&client, 2, Some(id));
        for second in 1..until {
            let (attempt, from) = (second, second * SECOND + Nanos::from(id) * 1000);
            let fence = 1000 * second + u64::from(id);
            history = history.held(&client, attempt, fence, from, from + 1);
        }
    }
    history
}

fn away(history: History, id: u64, nodes: &[u16], (from, to): (Nanos, Nanos)) -> History {
    history.fault_at(id, nodes, from * SECOND, to * SECOND)
}

#[test]
fn a_node_with_a_majority_that_does_not_serve_is_found() {
    let end = |history: History| history.healed(60 * SECOND, SECOND);
    assert_eq!(end(probed(60)).rules(), []);
    let one = end(away(probed(20), 1, &[1], (20, 60)));
    let verdict = one.judge();
    let names: Vec<&str> = verdict.violations.iter().map(|violation| &*violation.name).collect();
    assert_eq!(names, ["node 2", "node 3"], "node 1 is excused");
    assert!(verdict.violations.iter().all(|violation| violation.rule == Rule::MajorityServes));
    assert_eq!(verdict.judged.minority, 2 * 40 * SECOND);
    let two = away(away(probed(20), 1, &[1], (20, 60)), 2, &[3], (20, 60));
    assert_eq!(end(two).rules(), [], "a majority is away");
    let steps = away(away(probed(31), 1, &[1], (20, 30)), 1, &[2], (31, 39));
    let steps = steps.healed(43 * SECOND, SECOND);
    assert_eq!(steps.rules(), [], "the first is not back for long enough");
    let harmless = end(away(probed(20), 1, &[], (20, 60)));
    assert_eq!(harmless.rules(), [Rule::MajorityServes; 3], "a fault that excuses no node");
    let stalled = end(probed(20).tell(60 * SECOND, EventKind::Stalled { from: 20 * SECOND }));
    assert_eq!(stalled.rules(), [], "the machine stood still");
}

#[test]
fn an_unexplained_denial_with_a_majority_is_found() {
    let released = |nodes: &[u16]| {
        let held = probed(40).x_releases_at_22_s();
        away(held, 1, nodes, (15, 30)).denied("y", 1, (23 * SECOND, 24 * SECOND), 0).rules()
    };
    let is_found = |nodes: &[u16]| released(nodes).contains(&Rule::ReleasesAreKept);
    assert!(is_found(&[1]) && !is_found(&[1, 2]));
}

#[test]
fn a_waiter_that_is_passed_over_is_found() {
    let waits = |turns: u64| {
        let waits = history().asked("y", 1, 20 * SECOND, 60_000).asked("x", 1, 20 * SECOND, 60_000);
        let handed = (0..turns).fold(waits, |history, turn| {
            let at = (21 + turn) * SECOND;
            history.held("x", 1, 10 + turn, at, at + 1)
        });
        handed.held("y", 1, 999, 50 * SECOND, 51 * SECOND)
    };
    assert_eq!(waits(8).rules(), []);
    assert_eq!(waits(8).judge().judged.most_turns, 8);
    assert_eq!(waits(9).rules(), [Rule::WaitersTakeTurns], "four times each of two");
    assert_eq!(waits(9).fault(1, 25 * SECOND, 26 * SECOND).rules(), []);
}
