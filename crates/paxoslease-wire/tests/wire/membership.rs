//! Messages about the members of a cell decode to what was written, or are refused.

use core::time::Duration;

use crate::samples::node;
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, DecisionNumber, Member, Members, MembershipMessage,
    PeerState, Ttl,
};
use paxoslease_wire::{DecodeError, decode_membership, encode_membership};

pub(crate) fn members(ids: &[u16]) -> Members {
    let member = |id: &u16| Member {
        node: node(*id),
        birth: Birth(u64::from(*id) << 40),
        peer: format!("10.0.0.{id}:7401").into(),
    };
    Members::new(ids.iter().map(member).collect()).expect("valid")
}

fn messages() -> Vec<MembershipMessage> {
    use MembershipMessage as M;
    let unfounded = Configuration::unfounded(&members(&[1, 2, 3]));
    let floor = Ballot::above_counter(77);
    let stable = unfounded.after(&Change::Same(members(&[1, 2, 3])), floor).expect("legal");
    let joint = stable.after(&Change::Begin(members(&[2, 3, 4, 5, 6])), floor).expect("legal");
    let n = DecisionNumber { counter: 9, node: node(3), birth: Birth(u64::MAX) };
    let state = PeerState {
        epoch: 2,
        voting: true,
        quarantine_left: Duration::from_millis(5),
        longest: Ttl::from_millis(15_000),
        in_epoch_for: Some(Duration::from_millis(1234)),
        registers_left: 3,
        reaches: vec![node(1), node(512)],
    };
    let blank = PeerState {
        voting: false,
        longest: None,
        in_epoch_for: None,
        reaches: Vec::new(),
        ..state.clone()
    };
    vec![
        M::ConfPrepare { epoch: 2, n },
        M::ConfPromise { epoch: 2, n, accepted: None, top: 7 },
        M::ConfPromise { epoch: 2, n, accepted: Some((n, joint.clone())), top: u64::MAX },
        M::ConfAccept { epoch: 2, n, value: joint.clone() },
        M::ConfAccepted { epoch: 2, n },
        M::ConfReject { epoch: 2, promised: Some(n), wait: Duration::from_millis(14_999) },
        M::ConfReject { epoch: 2, promised: None, wait: Duration::ZERO },
        M::Learn { epoch: u32::MAX },
        M::Config(unfounded),
        M::Config(stable),
        M::Config(joint),
        M::Poll { epoch: 2, leads: true },
        M::Poll { epoch: 2, leads: false },
        M::State(state),
        M::State(blank),
    ]
}

fn encoded(message: &MembershipMessage) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_membership(message, &mut frame);
    frame
}

/// Sets the length of a frame after a change.
fn resized(mut frame: Vec<u8>) -> Vec<u8> {
    let len = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&len.to_le_bytes());
    frame
}

#[test]
fn messages_decode_to_what_was_written() {
    for message in messages() {
        assert_eq!(decode_membership(&encoded(&message)).as_ref(), Ok(&message));
    }
}

#[test]
fn cut_and_extended_messages_are_refused() {
    for message in messages() {
        let frame = encoded(&message);
        for len in 8..frame.len() {
            assert!(decode_membership(&resized(frame[..len].to_vec())).is_err(), "{message:?}");
        }
        let longer = resized([&frame[..], b"x"].concat());
        assert_eq!(decode_membership(&longer), Err(DecodeError::Trailing(1)));
    }
}

/// Whatever decodes has one encoding.
#[test]
fn a_changed_byte_is_refused_or_means_something_else() {
    for message in messages() {
        let frame = encoded(&message);
        for place in 8..frame.len() {
            for bit in 0..8 {
                let mut changed = frame.clone();
                changed[place] ^= 1 << bit;
                if let Ok(other) = decode_membership(&changed) {
                    assert_eq!(encoded(&other), changed, "{message:?} at {place}");
                }
            }
        }
    }
}

#[test]
fn spans_are_rounded_so_that_nobody_acts_early() {
    let span = Duration::from_micros(1500);
    let reject = MembershipMessage::ConfReject { epoch: 1, promised: None, wait: span };
    let Ok(MembershipMessage::ConfReject { wait, .. }) = decode_membership(&encoded(&reject))
    else {
        panic!("a reject")
    };
    assert_eq!(wait, Duration::from_millis(2));
    let Some(MembershipMessage::State(state)) = messages().pop() else { panic!("a state") };
    let state = PeerState { quarantine_left: span, in_epoch_for: Some(span), ..state };
    let Ok(MembershipMessage::State(state)) =
        decode_membership(&encoded(&MembershipMessage::State(state)))
    else {
        panic!("a state")
    };
    assert_eq!(state.quarantine_left, Duration::from_millis(2));
    assert_eq!(state.in_epoch_for, Some(Duration::from_millis(1)));
}
