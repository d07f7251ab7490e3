//! Registers of durable names at one node, where a transcript cannot show it.

use paxoslease_core::*;

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in range")
}

fn name() -> Name<'static> {
    Name::new("x").expect("not empty")
}

/// What node 1 reports to a change of node 2, right after a start that found this register.
fn reported_after_restart(ends_at: Instant, now: Instant) -> SentValue {
    let ttl = Ttl::from_millis(1000).expect("not zero");
    let cell = Cell::new(&[node(1), node(2), node(3)], ttl, Drift::NONE).expect("valid");
    let record = Record { ballot_ceiling: 100, lease_ceiling: None };
    let mut shard = Shard::start(Config::new(node(1), cell, 1), now, Start::Crash(record));
    let ballot = Ballot::new(7, node(2));
    let tenure = Tenure::of(ballot).expect("of a node");
    let value = DurableValue::Held { tenure, fence: tenure, ends_at };
    let label = Label::new(name(), Holder::NONE);
    shard.restore_durable(now, DurableRegister { label, ballot, value });
    // The ballots of the peers are below a ceiling on disk.
    let Some(Event::Persist(record)) = shard.poll_event() else { panic!("no record to write") };
    shard.record_written(now, record);
    let prepare = DurableMessage::Prepare { name: name(), ballot: Ballot::new(101, node(2)) };
    shard.handle_message(now, node(2), Message::Durable(prepare)).expect("admitted");
    let answer = shard.poll_transmit().expect("an answer");
    match answer.message() {
        Message::Durable(DurableMessage::Promise { register: Some(register), .. }) => {
            register.value
        }
        other => panic!("{other:?}"),
    }
}

/// K3, K12: the file time at a start is durable, so an end that it has passed is not forgotten.
/// Otherwise the lease could be kept again, although the name was granted to others since.
#[test]
fn an_end_that_has_passed_at_a_start_has_passed() {
    let now = Instant::ZERO.after(core::time::Duration::from_secs(5));
    let second = core::time::Duration::from_secs(1);
    let left = |value: SentValue| match value {
        SentValue::Held { lasts, .. } => lasts,
        SentValue::Free { .. } => panic!("it is held"),
    };
    assert_eq!(left(reported_after_restart(now, now)), None);
    let later = reported_after_restart(now.after(second), now);
    assert_eq!(left(later), Lasts::from_millis(1000));
}
