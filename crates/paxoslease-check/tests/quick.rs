//! Every schedule within the quick bounds. Each has a test of its own, so that they run in
//! parallel.

use paxoslease_check::{Bounds, Checks, profiles, search};

fn holds(title: &str) {
    let mut all = profiles::quick().into_iter();
    let bounds = all.find(|bounds| bounds.title == title).expect("bounds of this title");
    let report = search(&bounds, Checks::All);
    if let Some((harm, schedule)) = report.harm {
        panic!("{harm}\n{}", schedule.join("\n"));
    }
    assert!(report.is_complete(), "searched to the end");
    assert!(report.states > 1000, "something happened: {} states", report.states);
    // A check that never applies proves nothing: wherever a lease is renewed beside another, a Heal
    // must replace a remaining lower tenure (A5).
    let heals_meet_leases =
        bounds.renewals > 0 && bounds.acceptors > 1 && bounds.targets.is_empty();
    assert!(report.replacing > 0 || !heals_meet_leases, "no Heal replaced anything");
    println!("{} states, {} steps", report.states, report.steps);
}

macro_rules! searched {
    ($($title:ident),* $(,)?) => {
        $(#[test] fn $title() { holds(stringify!($title)); })*

        #[test]
        fn all_quick_bounds_are_searched() {
            let searched = [$(stringify!($title)),*];
            let listed = profiles::quick().into_iter().map(|bounds| bounds.title);
            assert_eq!(listed.collect::<Vec<_>>(), searched);
        }
    };
}

searched!(
    direct,
    prepared,
    retries,
    releases,
    releases_confirmed,
    rivals,
    three_rivals,
    rivals_and_crash,
    four_rivals,
    abandoned,
    renewal,
    renewal_and_release,
    renewal_from_behind,
    crash,
    slow_disk,
    slow_disk_and_snapshot,
    prepared_and_crash,
    two_crashes,
    no_disk,
    snapshot_and_crash,
    reclaiming,
    two_names,
    members,
    members_renewing,
    three_proposers,
    one_acceptor,
    two_acceptors,
    four_acceptors,
    five_acceptors,
    one_to_another,
    one_to_another_and_crash,
    one_to_another_and_stop,
    one_to_two,
    two_to_one,
    two_to_another,
    three_to_one,
    there_and_back,
    durable_crash,
    durable_two_crashes,
    durable_kept_later,
    durable_kept_and_check,
    durable_release,
    durable_two_releases,
    durable_release_and_crash,
    durable_released_to_another,
    durable_earlier_end,
    durable_members_release,
);

#[test]
fn the_deep_bounds_are_valid() {
    for bounds in profiles::deep() {
        let begun = Bounds { states_max: 2, ..bounds };
        assert!(search(&begun, Checks::All).harm.is_none(), "{}", begun.title);
    }
}
