//! Every schedule of decisions about members within these bounds, and for every rule of decisions
//! what goes wrong without it: two configurations of one epoch, which the search finds, or a vote
//! that leases forbid, which a script shows.

use std::collections::BTreeSet;
use std::time::Duration;

use paxoslease_check::Want::{Abort, Begin, End, Found};
use paxoslease_check::{DecisionBounds, DecisionHarm, Want, search_decisions};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, Decider, DeciderConfig, DecisionNumber, Drift, Instant,
    Member, Members, MembershipEvent, MembershipMessage, NodeId, NodeView, Rule, Rules,
    StableConfiguration, Token, Ttl, Vote,
};

/// Two administrators in a cell of three, without a fault.
const THREE: DecisionBounds = DecisionBounds {
    list: &[1, 2, 3],
    nodes: 3,
    decided: &[Found],
    wants: &[(1, Begin(&[1, 2])), (3, Begin(&[2, 3]))],
    failing: &[],
    crashes: 0,
    lost_disks: 0,
    forgers: &[],
    rules: Rules::ALL,
    states_max: 4_000_000,
};

const AGAIN: &[(u16, Want)] = &[(1, Begin(&[1, 2])), (3, Begin(&[2, 3])), (1, Begin(&[1, 2]))];

/// One node that moves to another and back, with aborts.
const MOVING: DecisionBounds = DecisionBounds {
    list: &[1],
    nodes: 2,
    wants: &[(1, Begin(&[2])), (1, End), (1, Abort), (2, Begin(&[1])), (1, Begin(&[2])), (2, End)],
    failing: &[1, 2],
    crashes: 1,
    ..THREE
};

/// Four decisions in a row.
const GROWING: DecisionBounds = DecisionBounds {
    list: &[1, 2],
    wants: &[(1, Begin(&[1, 2, 3])), (1, End), (2, Abort), (3, Begin(&[1, 3]))],
    failing: &[2],
    crashes: 1,
    ..THREE
};

const REPLACING: DecisionBounds =
    DecisionBounds { nodes: 4, wants: &[(1, Begin(&[1, 2, 4])), (1, End), (3, Abort)], ..THREE };

const JOINT: DecisionBounds = DecisionBounds {
    decided: &[Found, Begin(&[1, 2])],
    wants: &[(1, End), (3, Abort)],
    failing: &[2],
    crashes: 1,
    ..THREE
};

const FOUNDING: DecisionBounds =
    DecisionBounds { decided: &[], wants: &[(1, Found), (3, Found)], ..THREE };

const FOUNDING_TWO: DecisionBounds = DecisionBounds {
    list: &[1, 2],
    nodes: 2,
    decided: &[],
    wants: &[(1, Found), (2, Found)],
    failing: &[1, 2],
    lost_disks: 1,
    ..THREE
};

fn holds(bounds: &DecisionBounds, epoch: u32) {
    let report = search_decisions(bounds);
    if let Some((harm, schedule)) = report.harm {
        panic!("{harm}\n{}", schedule.join("\n"));
    }
    assert!(report.is_complete, "searched to the end");
    assert_eq!(report.epoch, epoch, "the highest epoch that can be reached");
    println!("{} states, {} steps, depth {}", report.states, report.steps, report.depth);
}

macro_rules! searched {
    ($($title:ident: $epoch:literal, $bounds:expr;)*) => {
        $(#[test] fn $title() { holds(&$bounds, $epoch); })*
    };
}

searched!(
    two_administrators: 2, THREE;
    three_attempts: 2, DecisionBounds { wants: AGAIN, ..THREE };
    four_members: 2, DecisionBounds { list: &[1, 2, 3, 4], nodes: 4, ..THREE };
    a_voter_crashes_twice: 2, DecisionBounds { failing: &[2], crashes: 2, ..THREE };
    voter_or_coordinator_crashes: 2, DecisionBounds { failing: &[1, 2], crashes: 1, ..THREE };
    a_voter_loses_its_disk: 2, DecisionBounds { failing: &[2], lost_disks: 1, ..THREE };
    a_coordinator_loses_its_disk: 2, DecisionBounds { failing: &[1], lost_disks: 1, ..THREE };
    end_or_abort: 3, JOINT;
    a_cell_of_one_moves: 7, MOVING;
    a_cell_grows_and_changes_again: 5, GROWING;
    a_member_is_replaced: 3, REPLACING;
    a_stranger_and_a_member_tell_false_members: 2, DecisionBounds { forgers: &[3, 4], ..THREE };
    a_removed_member_tells_false_members: 4, DecisionBounds {
        decided: &[Found, Begin(&[1, 2]), End],
        wants: &[(1, Begin(&[1])), (2, Begin(&[2]))],
        forgers: &[3],
        ..THREE
    };
    any_member_loses_its_disk_at_the_founding: 1,
        DecisionBounds { failing: &[1, 2, 3], lost_disks: 1, ..FOUNDING };
    two_disks_are_lost_at_the_founding: 1,
        DecisionBounds { wants: &[(1, Found)], failing: &[2, 3], lost_disks: 2, ..FOUNDING };
    a_crash_and_a_lost_disk_at_the_founding: 1, DecisionBounds { crashes: 1, ..FOUNDING_TWO };
);

/// Rules whose absence leads to two configurations, each with bounds in which that happens.
fn mutants() -> [(Rule, DecisionBounds); 12] {
    // The last one finds what was accepted before the crash.
    let again = &[(1, Begin(&[1])), (1, Begin(&[2])), (2, Begin(&[1]))];
    [
        (Rule::VoteIsDurable, DecisionBounds { failing: &[2], crashes: 1, ..THREE }),
        (Rule::CoordinatorTakesSeenValue, THREE),
        (Rule::DecisionNeedsMajority, THREE),
        (
            Rule::CoordinatorNumberIsDurable,
            DecisionBounds {
                wants: again,
                failing: &[1],
                crashes: 1,
                states_max: 9_000_000,
                ..THREE
            },
        ),
        (Rule::VoterIsTheBirthListed, DecisionBounds { failing: &[2], lost_disks: 1, ..THREE }),
        (Rule::VoteOnlyInOwnEpoch, THREE),
        (
            Rule::OldSetDecides,
            DecisionBounds {
                nodes: 4,
                decided: &[Found, Begin(&[3, 4])],
                wants: &[(1, Abort), (3, End)],
                ..THREE
            },
        ),
        (Rule::FoundingIsUnanimous, DecisionBounds { failing: &[2], lost_disks: 1, ..FOUNDING }),
        (
            Rule::NumberNamesBirth,
            DecisionBounds { wants: &[(1, Found), (1, Found)], failing: &[1], ..FOUNDING_TWO },
        ),
        (
            Rule::AnswerCountsInItsEpoch,
            DecisionBounds { wants: &[(1, Begin(&[1, 2])), (1, End), (3, Abort)], ..THREE },
        ),
        (Rule::ConfigFromMembers, DecisionBounds { forgers: &[4], ..THREE }),
        (Rule::ConfigFollows, DecisionBounds { forgers: &[3], ..THREE }),
    ]
}

#[test]
fn every_rule_prevents_two_configurations() {
    for (rule, bounds) in mutants() {
        let without = DecisionBounds { rules: Rules::without(rule), ..bounds };
        let report = search_decisions(&without);
        let (harm, schedule) = report.harm.unwrap_or_else(|| panic!("{rule:?} not caught"));
        assert!(matches!(harm, DecisionHarm::TwoConfigurations(_)), "{harm}");
        println!("{rule:?}: {} states, depth {}", report.states, schedule.len());
    }
}

#[test]
fn the_same_bounds_are_safe_with_the_rule_in_force() {
    for (rule, bounds) in mutants() {
        let report = search_decisions(&bounds);
        assert!(report.is_complete, "{rule:?}: {:?}", report.harm);
        println!("{rule:?}: {} states, depth {}", report.states, report.depth);
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Node 2 of a cell of three, and the decision that node 1 coordinates.
struct Scene {
    decider: Decider,
    joint: Configuration,
    view: NodeView,
    events: Vec<MembershipEvent>,
}

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("in bounds")
}

fn members(ids: &[u16]) -> Members {
    let member = |node: &u16| Member {
        node: id(*node),
        birth: Birth((*node).into()),
        peer: format!("n{node}").into(),
    };
    Members::new(ids.iter().map(member).collect()).expect("valid")
}

impl Scene {
    /// In the joint epoch, adopted from Config at second 0 if `adopts`, otherwise from the record.
    fn new(rules: Rules, adopts: bool) -> Self {
        let list = members(&[1, 2, 3]);
        let after =
            |from: &Configuration, change| from.after(&change, Ballot::ZERO).expect("legal");
        let stable = after(&Configuration::unfounded(&list), Change::Same(list));
        let joint = after(&stable, Change::Begin(members(&[1, 2, 4])));
        let configuration = if adopts { stable } else { joint.clone() };
        let record = StableConfiguration { configuration, vote: Vote::default() };
        let mut config = DeciderConfig::new(id(2), Birth(2), Drift::NONE, 0);
        config.rules = rules;
        let decider = Decider::start(config, Instant::ZERO, record);
        let view = NodeView { top: 5, ..NodeView::default() };
        let mut scene = Self { decider, joint, view, events: Vec::new() };
        if adopts {
            scene.hear(0, MembershipMessage::Config(scene.joint.clone()));
        }
        scene
    }

    fn hear(&mut self, second: u32, message: MembershipMessage) {
        let now = Instant::ZERO.after(SECOND * second);
        self.decider.handle_message(now, (id(1), Birth(1)), message, &self.view);
        self.take_events();
    }

    fn take_events(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.decider.poll_event()));
    }

    fn written(&mut self) {
        self.decider.record_written(Instant::ZERO, &self.view);
        self.take_events();
    }

    /// All shards have changed over, with a lease of ten seconds in use.
    fn changed(&mut self) {
        self.decider.shards_changed(Instant::ZERO, 2, Ttl::from_millis(10_000));
    }

    /// The answers of node 2 when node 1 proposes End.
    fn end(&mut self, second: u32) -> Vec<MembershipMessage> {
        let n = DecisionNumber { counter: 1, node: id(1), birth: Birth(1) };
        self.hear(second, MembershipMessage::ConfPrepare { epoch: 3, n });
        self.written();
        let value = self.joint.after(&Change::End, Ballot::ZERO).expect("legal");
        self.hear(second, MembershipMessage::ConfAccept { epoch: 3, n, value });
        self.written();
        std::iter::from_fn(|| self.decider.poll_transmit()).map(|(_, message)| message).collect()
    }

    fn has_adopted(&self) -> bool {
        self.events.iter().any(|event| matches!(event, MembershipEvent::Adopt(_)))
    }

    fn votes_for_end(&mut self, second: u32) -> bool {
        let is_vote = |message| matches!(message, &MembershipMessage::ConfAccepted { .. });
        self.end(second).iter().any(is_vote)
    }
}

/// Whether a decider with these rules does what this rule demands.
fn obeys(rules: Rules, rule: Rule) -> bool {
    let mut scene = Scene::new(rules, rule != Rule::WaitCountsAnewAfterRestart);
    match rule {
        Rule::EndWaits | Rule::EveryVoterWaits | Rule::WaitCountsAnewAfterRestart => {
            scene.written();
            scene.changed();
            !scene.votes_for_end(1)
        }
        Rule::WaitCoversLongestTtl => {
            scene.written();
            scene.changed();
            !scene.votes_for_end(9)
        }
        Rule::VotesAfterAllShardsChanged => {
            scene.written();
            scene.end(20).is_empty()
        }
        Rule::TopReadAfterSeal => {
            scene.written();
            scene.view.top = 50;
            scene.changed();
            let reads_late =
                |message| matches!(message, &MembershipMessage::ConfPromise { top: 50, .. });
            scene.end(20).iter().any(reads_late)
        }
        Rule::AdoptionIsDurableFirst => {
            let early = scene.has_adopted();
            scene.written();
            scene.has_adopted() && !early
        }
        Rule::FloorCoversPromises => {
            let list = members(&[2]);
            let configuration = Configuration::unfounded(&list);
            let record = StableConfiguration { configuration, vote: Vote::default() };
            let mut config = DeciderConfig::new(id(2), Birth(2), Drift::NONE, 0);
            config.rules = rules;
            scene.decider = Decider::start(config, Instant::ZERO, record);
            scene.decider.shards_changed(Instant::ZERO, 0, None);
            let change = Change::Same(list);
            let begun = scene.decider.begin(Instant::ZERO, Token(1), change, &scene.view);
            begun.expect("possible");
            (0..3).for_each(|_| scene.written());
            assert_eq!(scene.decider.configuration().epoch(), 1, "a cell of one decides alone");
            scene.decider.configuration().floor() > Ballot::new(5, NodeId::MAX)
        }
        _ => unreachable!("the search covers {rule:?}"),
    }
}

/// Rules that keep leases safe across epochs. Alone, decisions show only that they are obeyed.
const SCRIPTED: [Rule; 8] = [
    Rule::EndWaits,
    Rule::WaitCoversLongestTtl,
    Rule::EveryVoterWaits,
    Rule::WaitCountsAnewAfterRestart,
    Rule::VotesAfterAllShardsChanged,
    Rule::FloorCoversPromises,
    Rule::TopReadAfterSeal,
    Rule::AdoptionIsDurableFirst,
];

#[test]
fn every_rule_for_leases_is_obeyed_unless_it_is_off() {
    for rule in SCRIPTED {
        assert!(obeys(Rules::ALL, rule), "{rule:?}");
        assert!(!obeys(Rules::without(rule), rule), "{rule:?} makes no difference");
    }
    let mut scene = Scene::new(Rules::ALL, true);
    scene.written();
    scene.changed();
    assert!(scene.votes_for_end(10), "the wait is over");
}

#[test]
fn every_rule_of_decisions_has_its_mutant() {
    let caught: BTreeSet<Rule> =
        mutants().map(|(rule, _)| rule).into_iter().chain(SCRIPTED).collect();
    assert_eq!(caught, BTreeSet::from(Rule::OF_DECISIONS));
}
