//! The endpoints that a client tries: first the members of the cell, as its nodes report them, then
//! the configured endpoints. So the configured ones only have to reach the cell once.
//!
//! There is no connection here. Which endpoint comes next is for `route` and `follow` to choose.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paxoslease_holder::AskError;

use crate::engine::protocol::Greeting;

/// How far an epoch may plausibly be from the one that is known. A false node that reports a higher
/// one is ignored. If it was the first, a node that is further behind than this corrects it.
const JUMP_MAX: u32 = 1024;

/// The list of one client. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints(Arc<Mutex<List>>);

#[derive(Debug)]
struct List {
    configured: Vec<String>,
    /// The members, then the configured endpoints that are not among them. Never empty.
    all: Vec<String>,
    /// How many of them are members that a node reported.
    members: usize,
    /// The epoch of these members.
    epoch: u32,
}

impl Endpoints {
    pub(crate) fn new(configured: Vec<String>) -> Self {
        let all = configured.clone();
        Self(Arc::new(Mutex::new(List { configured, all, members: 0, epoch: 0 })))
    }

    /// Takes the members that a node reports. A node that is behind does not take the client back:
    /// the list of a lower epoch is ignored. So is a shorter list of the same epoch, because a node
    /// that was restarted does not know all addresses yet, and a jump to a distant epoch.
    pub(crate) fn learn(&self, greeting: &Greeting) {
        let Greeting { epoch, members, .. } = greeting;
        let mut list = self.lock();
        let is_known = list.members > 0;
        let is_far = is_known && epoch.abs_diff(list.epoch) > JUMP_MAX;
        let is_behind = (*epoch, members.len()) < (list.epoch, list.members);
        if members.is_empty() || is_far != is_behind {
            return;
        }
        let others = list.configured.iter().filter(|endpoint| !members.contains(endpoint));
        let all = members.iter().chain(others).cloned().collect();
        if list.all != all {
            tracing::debug!(epoch, ?members, "follows the members");
        }
        (list.all, list.members, list.epoch) = (all, members.len(), *epoch);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().all.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().all.len()
    }

    pub(crate) fn first(&self) -> String {
        self.lock().all[0].clone()
    }

    /// The endpoint after this one, round robin.
    pub(crate) fn after(&self, last: &str) -> String {
        self.best_after(last, |_| 0)
    }

    /// Round robin among the endpoints with the lowest rank.
    pub(crate) fn best_after<R: Ord>(
        &self,
        last: &str,
        rank: impl Fn(Candidate<'_>) -> R,
    ) -> String {
        let list = self.lock();
        let count = list.all.len();
        let begin = list.all.iter().position(|endpoint| endpoint == last).map_or(0, |at| at + 1);
        let in_turn = (begin..begin + count).map(|turn| {
            let index = turn % count;
            Candidate { endpoint: &list.all[index], is_member: index < list.members }
        });
        let best = in_turn.min_by_key(|candidate| rank(*candidate));
        best.expect("never empty").endpoint.to_owned()
    }

    /// How a failure at an endpoint counts. The user has not named the addresses of members, and
    /// certificates may not be for these. Such a node is not reachable there, which does not mean
    /// that the cell and the client do not trust each other.
    pub(crate) fn judge(&self, error: AskError) -> AskError {
        let (endpoint, problem) = match &error {
            AskError::Tls { endpoint, problem } => (endpoint, problem.clone()),
            AskError::TlsRequired { endpoint } | AskError::TokenInClear { endpoint } => {
                (endpoint, error.to_string())
            }
            _ => return error,
        };
        if self.lock().configured.contains(endpoint) {
            return error;
        }
        AskError::Unreachable { endpoints: vec![endpoint.clone()], problem }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An endpoint that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) endpoint: &'a str,
    /// Whether a node has reported it as the address of a member.
    pub(crate) is_member: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::greeting;

    fn learned(endpoints: &Endpoints, epoch: u32, members: &[&str]) -> String {
        endpoints.learn(&greeting(epoch, members));
        endpoints.all().join(" ")
    }

    #[test]
    fn members_come_before_the_configured_endpoints() {
        let endpoints = Endpoints::new(vec!["lb:1".into(), "a:1".into()]);
        assert_eq!(learned(&endpoints, 0, &[]), "lb:1 a:1", "no node advertises an address");
        assert_eq!(learned(&endpoints, 1, &["a:1", "b:1", "c:1"]), "a:1 b:1 c:1 lb:1");
        assert_eq!(learned(&endpoints, 3, &["d:1"]), "d:1 lb:1 a:1", "all members were replaced");
    }

    #[test]
    fn a_node_that_is_behind_or_knows_less_changes_nothing() {
        let endpoints = Endpoints::new(vec!["a:1".into()]);
        assert_eq!(learned(&endpoints, 4, &["a:1", "b:1"]), "a:1 b:1");
        assert_eq!(learned(&endpoints, 3, &["a:1", "c:1", "d:1"]), "a:1 b:1", "a lower epoch");
        assert_eq!(learned(&endpoints, 4, &["b:1"]), "a:1 b:1", "it was just restarted");
        assert_eq!(learned(&endpoints, 5, &[]), "a:1 b:1", "it knows no address");
        assert_eq!(learned(&endpoints, 4, &["a:1", "b:2"]), "a:1 b:2", "a member has moved");
    }

    #[test]
    fn a_made_up_epoch_does_not_keep_the_client_from_the_cell() {
        let endpoints = Endpoints::new(vec!["a:1".into()]);
        // The first node that answered was a false one.
        assert_eq!(learned(&endpoints, u32::MAX, &["evil:1"]), "evil:1 a:1");
        assert_eq!(learned(&endpoints, 4, &["a:1", "b:1"]), "a:1 b:1");
        assert_eq!(learned(&endpoints, u32::MAX, &["evil:1"]), "a:1 b:1", "a jump");
        assert_eq!(learned(&endpoints, 900, &["c:1"]), "c:1 a:1", "after a long sleep");
    }

    #[test]
    fn a_certificate_for_another_address_is_no_lack_of_trust() {
        let refused = |endpoint: &str| AskError::Tls {
            endpoint: endpoint.to_owned(),
            problem: "not valid for that name".into(),
        };
        let endpoints = Endpoints::new(vec!["a:1".into()]);
        endpoints.learn(&greeting(1, &["10.0.0.1:1"]));
        assert!(endpoints.judge(refused("a:1")).is_lack_of_trust());
        let learned = endpoints.judge(refused("10.0.0.1:1"));
        assert!(!learned.is_lack_of_trust());
        assert!(learned.to_string().contains("not valid for that name"), "{learned}");
    }
}
