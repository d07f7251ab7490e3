//! The counters of a shard: plain numbers on the hot path, published through the `metrics` facade a
//! few times a second.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use paxoslease_core::{Message, Refusal, RoundCounts, Shard};

use paxoslease_holder::Rates;

use super::peers::Reach;

/// Why a message was lost on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropReason {
    /// The peer is not connected.
    PeerDown,
    /// The peer reads too slowly.
    QueueFull,
    /// A node that does not belong to the cell connected.
    Refused,
    /// The bytes are not valid.
    Malformed,
    /// C11: members that a peer told and that this node did not believe.
    ConfigRefused,
}

impl DropReason {
    const ALL: [(Self, &'static str); 5] = [
        (Self::PeerDown, "peer_down"),
        (Self::QueueFull, "queue_full"),
        (Self::Refused, "refused"),
        (Self::Malformed, "malformed"),
        (Self::ConfigRefused, "config_refused"),
    ];
}

/// How an acquire or a renewal ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Granted,
    Held,
    NoQuorum,
    NotHeld,
    Refused,
    Abandoned,
}

const OUTCOMES: [(Outcome, &str); 6] = [
    (Outcome::Granted, "granted"),
    (Outcome::Held, "held"),
    (Outcome::NoQuorum, "no_quorum"),
    (Outcome::NotHeld, "not_held"),
    (Outcome::Refused, "refused"),
    (Outcome::Abandoned, "abandoned"),
];

const KINDS: usize = Message::KINDS.len();
/// Rounds are counted by how long they took: four steps for each doubling of a microsecond.
const SPANS: usize = 128;

#[derive(Debug)]
struct Spans([u32; SPANS]);

impl Default for Spans {
    fn default() -> Self {
        Self([0; SPANS])
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    sent: [u64; KINDS],
    received: [u64; KINDS],
    drops: [u64; DropReason::ALL.len()],
    acquires: [u64; OUTCOMES.len()],
    renewals: [u64; OUTCOMES.len()],
    releases: u64,
    /// Since [`Self::turn_rates`], and per second before that.
    lately: Rates,
    pub(crate) rates: Rates,
    spans: Spans,
    pauses: u64,
    /// Changes that watchers of this process missed.
    missed: u64,
    /// Whether everything was published once: from then on, only changes are.
    known: bool,
    /// The counts of the shard itself when it last published.
    rounds: RoundCounts,
    refusals: [u64; Refusal::ALL.len()],
}

impl Counters {
    pub(crate) const fn sent(&mut self, message: &Message<'_>) {
        self.sent[message.kind_index()] += 1;
    }

    pub(crate) const fn received(&mut self, message: &Message<'_>) {
        self.received[message.kind_index()] += 1;
    }

    pub(crate) const fn dropped(&mut self, why: DropReason, count: u64) {
        self.drops[why as usize] += count;
    }

    pub(crate) const fn acquired(&mut self, outcome: Outcome) {
        self.acquires[outcome as usize] += 1;
        if matches!(outcome, Outcome::Granted) {
            self.lately.acquires += 1;
        }
    }

    pub(crate) const fn renewed(&mut self, outcome: Outcome) {
        self.renewals[outcome as usize] += 1;
        if matches!(outcome, Outcome::Granted) {
            self.lately.renewals += 1;
        }
    }

    pub(crate) const fn released(&mut self) {
        self.releases += 1;
        self.lately.releases += 1;
    }

    /// Ends an interval of counting of this length.
    pub(crate) fn turn_rates(&mut self, span: Duration) {
        let lately = std::mem::take(&mut self.lately);
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        let per_second = |count: u64| (count * 1000).div_ceil(millis);
        self.rates = Rates {
            acquires: per_second(lately.acquires),
            renewals: per_second(lately.renewals),
            releases: per_second(lately.releases),
        };
    }

    pub(crate) const fn paused(&mut self) {
        self.pauses += 1;
    }

    pub(crate) const fn missed(&mut self, count: u64) {
        self.missed += count;
    }

    /// A round was decided after this long.
    pub(crate) fn round_took(&mut self, span: Duration) {
        self.spans.0[place_of(span)] += 1;
    }

    /// Publishes everything that was counted since the last call.
    pub(crate) fn publish(&mut self, shard: &Shard) {
        let known = std::mem::replace(&mut self.known, true);
        let worth_it = |count: &u64| *count > 0 || !known;
        for (kind, name) in Message::KINDS.into_iter().enumerate() {
            for (counts, direction) in [(&mut self.sent, "out"), (&mut self.received, "in")] {
                let count = std::mem::take(&mut counts[kind]);
                if count > 0 {
                    counter!("paxoslease_messages_total", "kind" => name, "direction" => direction)
                        .increment(count);
                }
            }
        }
        for (drop, reason) in DropReason::ALL {
            let count = std::mem::take(&mut self.drops[drop as usize]);
            if worth_it(&count) {
                counter!("paxoslease_messages_dropped_total", "reason" => reason).increment(count);
            }
        }
        for refusal in Refusal::ALL {
            let count = shard.dropped(refusal);
            let new = count - std::mem::replace(&mut self.refusals[refusal as usize], count);
            if worth_it(&new) {
                let reason = reason_of(refusal);
                counter!("paxoslease_messages_dropped_total", "reason" => reason).increment(new);
            }
        }
        for (outcome, result) in OUTCOMES {
            let acquires = std::mem::take(&mut self.acquires[outcome as usize]);
            if worth_it(&acquires) {
                counter!("paxoslease_acquires_total", "result" => result).increment(acquires);
            }
            let renewals = std::mem::take(&mut self.renewals[outcome as usize]);
            if worth_it(&renewals) {
                counter!("paxoslease_renewals_total", "result" => result).increment(renewals);
            }
        }
        counter!("paxoslease_releases_total").increment(std::mem::take(&mut self.releases));
        counter!("paxoslease_pauses_total").increment(std::mem::take(&mut self.pauses));
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            counter!("paxoslease_limited_total", "limit" => "watch").increment(missed);
        }
        let rounds = shard.round_counts();
        let last = std::mem::replace(&mut self.rounds, rounds);
        counter!("paxoslease_rounds_total", "path" => "direct")
            .increment(rounds.direct - last.direct);
        counter!("paxoslease_rounds_total", "path" => "prepared")
            .increment(rounds.prepared - last.prepared);
        let seconds = histogram!("paxoslease_round_seconds");
        for (place, count) in self.spans.0.iter_mut().enumerate() {
            let count = std::mem::take(count);
            if count > 0 {
                seconds.record_many(seconds_of(place), count as usize);
            }
        }
    }
}

/// Sets a peer's gauges. The facade cannot remove a gauge, so one without a value is not a number.
pub(crate) fn publish_peer(peer: u16, reach: Reach) {
    let peer = peer.to_string();
    let up = gauge!("paxoslease_peer_up", "peer" => peer.clone());
    let rtt = gauge!("paxoslease_peer_rtt_seconds", "peer" => peer);
    match reach {
        Reach::Up(span) => {
            up.set(1.0);
            rtt.set(span.as_secs_f64());
        }
        Reach::Down => up.set(0.0),
        Reach::Gone => {
            up.set(f64::NAN);
            rtt.set(f64::NAN);
        }
    }
}

const fn reason_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Quarantined => "quarantined",
        Refusal::TtlTooLong => "ttl_too_long",
        Refusal::BallotExhausting => "ballot_exhausting",
        Refusal::BallotNotSenders => "ballot_not_senders",
        Refusal::NotAcceptor => "not_acceptor",
        Refusal::NotMember => "not_member",
        Refusal::WrongEpoch => "wrong_epoch",
        Refusal::TableFull => "table_full",
        Refusal::RecordBehind => "record_behind",
    }
}

/// Quarter doublings of a microsecond.
fn place_of(span: Duration) -> usize {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    let doublings = micros.ilog2();
    let quarter = if doublings >= 2 { (micros >> (doublings - 2)) & 3 } else { 0 };
    (doublings as usize * 4 + quarter as usize).min(SPANS - 1)
}

/// The middle of such a step, in seconds.
fn seconds_of(place: usize) -> f64 {
    let doubling = 2_f64.powi(i32::try_from(place / 4).unwrap_or(i32::MAX));
    let quarter = (place % 4) as f64;
    doubling * (1.0 + (quarter + 0.5) / 4.0) / 1e6
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use paxoslease_core::{Ballot, NodeId, Reply};

    use super::*;
    use crate::driver::tests::{TestDriver, published};

    #[test]
    fn a_span_is_reported_within_a_quarter_of_itself() {
        for micros in [4, 5, 17, 100, 999, 12_345, 2_000_000] {
            let reported = seconds_of(place_of(Duration::from_micros(micros))) * 1e6;
            let error = (reported / micros as f64 - 1.0).abs();
            assert!(error < 0.25, "{micros} us reported as {reported}");
        }
        assert!(place_of(Duration::MAX) < SPANS);
        assert_eq!(place_of(Duration::ZERO), 0);
    }

    #[test]
    fn rates_are_per_second_of_the_last_interval() {
        let mut counters = Counters::default();
        (0..3).for_each(|_| counters.acquired(Outcome::Granted));
        counters.acquired(Outcome::Held);
        (0..8).for_each(|_| counters.renewed(Outcome::Granted));
        counters.released();
        assert_eq!(counters.rates, Rates::default());
        counters.turn_rates(Duration::from_secs(2));
        // Rounded up, so that a rare event is not shown as none.
        assert_eq!(counters.rates, Rates { acquires: 2, renewals: 4, releases: 1 });
        counters.turn_rates(Duration::from_secs(2));
        assert_eq!(counters.rates, Rates::default());
    }

    fn publish(counters: &mut Counters, shard: &Shard) -> BTreeMap<String, f64> {
        published(|| counters.publish(shard))
    }

    #[test]
    fn every_count_is_published_exactly_once() {
        let mut driver = TestDriver::new();
        let mut counters = Counters::default();
        let first = publish(&mut counters, driver.shard());
        // All results and reasons exist from the start; kinds of messages only once seen.
        assert_eq!(first["paxoslease_acquires_total granted"], 0.0);
        assert_eq!(first["paxoslease_renewals_total refused"], 0.0);
        assert_eq!(first["paxoslease_messages_dropped_total queue_full"], 0.0);
        for reason in ["not_member", "ttl_too_long", "ballot_not_senders", "table_full"] {
            assert_eq!(first[&*format!("paxoslease_messages_dropped_total {reason}")], 0.0);
        }
        assert!(!first.keys().any(|key| key.starts_with("paxoslease_messages_total")));
        assert!(!first.contains_key("paxoslease_limited_total watch"));

        let stranger = NodeId::new(9).expect("an id");
        let ballot = Ballot::new(7, NodeId::new(1).expect("an id"));
        let accept = Message::Reply(Reply::Accept { ballot });
        for name in ["a", "b"] {
            driver.acquire(name, "", Duration::ZERO);
            let now = driver.now;
            let refused = driver.shard.handle_message(now, stranger, accept);
            assert_eq!(refused, Err(Refusal::NotMember));
            counters.missed(3);
            counters.round_took(Duration::from_micros(1000));
            let next = publish(&mut counters, driver.shard());
            assert_eq!(next["paxoslease_rounds_total direct"], 1.0);
            assert_eq!(next["paxoslease_rounds_total prepared"], 0.0);
            assert_eq!(next["paxoslease_messages_dropped_total not_member"], 1.0);
            assert_eq!(next["paxoslease_limited_total watch"], 3.0);
            assert!((0.000_96..0.001_15).contains(&next["paxoslease_round_seconds"]));
            assert!(!next.contains_key("paxoslease_acquires_total granted"), "unchanged");
            assert!(!next.contains_key("paxoslease_messages_dropped_total queue_full"));
        }
    }
}
