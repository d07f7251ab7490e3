//! The same seed gives the same world.

use paxoslease_sim::{Faults, Keep, Options, run};

#[test]
fn equal_seeds_give_equal_traces_and_other_seeds_others() {
    let options = Options { faults: Faults::Hostile, events_max: 5000, ..Options::default() };
    let hashes: Vec<u64> = (0..20).map(|seed| run(seed, &options).trace_hash).collect();
    let again: Vec<u64> = (0..20).map(|seed| run(seed, &options).trace_hash).collect();
    assert_eq!(hashes, again);
    let mut distinct = hashes;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn keeping_the_trace_changes_nothing_in_it() {
    for seed in 0..10 {
        let options = Options { faults: Faults::Swarm, events_max: 2000, ..Options::default() };
        let plain = run(seed, &options);
        let last = run(seed, &Options { keep: Keep::Last(50), ..options });
        let all = run(seed, &Options { keep: Keep::All, ..options });
        assert_eq!(plain.trace_hash, last.trace_hash);
        assert_eq!(plain.trace_hash, all.trace_hash);
        assert!(plain.trace.is_empty());
        assert_eq!(last.trace[..], all.trace[all.trace.len() - 50..]);
    }
}

#[test]
fn given_options_override_the_seed() {
    for nodes in 1..=9 {
        let options = Options {
            nodes: Some(nodes),
            clients: Some(3),
            names: Some(2),
            proposers: Some(1),
            events_max: 1000,
            ..Options::default()
        };
        let report = run(u64::from(nodes), &options);
        assert_eq!((report.nodes, report.clients), (nodes, 3));
        assert_eq!((report.names, report.proposers), (2, 1));
        assert!(report.counts.events >= 1000);
    }
}
