//! A view tells how a lease ends, while the guard is elsewhere.

use super::*;
use paxoslease_node::LeaseEnd;

#[test]
fn a_view_tells_a_release_from_a_loss() {
    let mut cell = cell(&Setup::new(1, 3));
    let released = cell.lease(0, TTL);
    let view = released.view();
    assert!(view.is_held() && view.end().is_none());
    let waiting = view.clone();
    cell.run(0, async move { released.release().await }).expect("a majority confirms");
    assert_eq!(view.end(), Some(LeaseEnd::Released));
    assert_eq!(cell.run(0, async move { waiting.ended().await }), LeaseEnd::Released);

    let lost = cell.lease(0, TTL);
    let (view, waiting) = (lost.view(), lost.view());
    cell.isolate(0);
    assert_eq!(cell.run(0, async move { waiting.ended().await }), LeaseEnd::Lost);
    assert!(!lost.is_held());
    drop(lost);
    assert_eq!(view.end(), Some(LeaseEnd::Lost), "the end does not change");
}
