//! Logs a node's status: at every important change, and every minute.
//!
//! Counts its polls instead of reading a clock.

use std::time::Duration;

use paxoslease_node::Status;
use tracing::{info, warn};

/// The interval of polls. A change that is over before the next poll is not logged here; the node
/// itself logs connections.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Polls without a change after which the status is logged anyway: a minute.
const POLLS_WITHOUT_CHANGE_MAX: u32 = 120;
/// Polls between two lines that count a quarantine down: ten seconds.
const POLLS_PER_COUNTDOWN: u32 = 20;

/// The last logged status, and the polls since then.
#[derive(Default)]
pub(super) struct StatusLog {
    last: Option<LoggedState>,
    polls: u32,
}

/// The parts of a status whose changes are logged.
#[derive(PartialEq, Eq)]
struct LoggedState {
    ready: bool,
    quarantined: bool,
    up: Vec<(u16, bool)>,
    disk_problem: bool,
}

impl LoggedState {
    fn of(status: &Status) -> Self {
        Self {
            ready: status.ready,
            quarantined: !status.quarantine_remaining.is_zero(),
            up: status.peers.iter().map(|peer| (peer.node, peer.up)).collect(),
            disk_problem: status.disk_problem.is_some(),
        }
    }
}

impl StatusLog {
    /// Logs the changes. Returns whether there was one.
    pub(super) fn poll(&mut self, status: &Status) -> bool {
        let essence = LoggedState::of(status);
        self.polls += 1;
        let was_quarantined = self.last.as_ref().is_some_and(|last| last.quarantined);
        if was_quarantined && !essence.quarantined {
            info!("votes now");
        }
        let changed = self.last.as_ref() != Some(&essence);
        let due = changed || self.polls >= POLLS_WITHOUT_CHANGE_MAX;
        if due {
            self.polls = 0;
            log(status);
        } else if essence.quarantined && self.polls.is_multiple_of(POLLS_PER_COUNTDOWN) {
            info!("quarantined: votes in {:.1?}", status.quarantine_remaining);
        }
        self.last = Some(essence);
        due
    }
}

fn log(status: &Status) {
    let (up, down): (Vec<_>, Vec<_>) = status.peers.iter().partition(|peer| peer.up);
    let up = up.iter().map(|peer| peer.node.to_string());
    let down = down.iter().map(|peer| match &peer.problem {
        Some(problem) => format!("{} ({problem})", peer.node),
        None => peer.node.to_string(),
    });
    let quarantine = Some(status.quarantine_remaining).filter(|span| !span.is_zero());
    info!(
        ready = status.ready,
        peers_up = list(up),
        peers_down = list(down),
        quarantine = quarantine.map(|span| format!("{span:.1?}")),
        leases = status.leases,
        guards = status.guards,
        waiters = status.waiters,
        "status"
    );
    if let Some(problem) = &status.disk_problem {
        warn!("data folder: {problem}");
    }
}

/// A short status for systemd.
pub(super) fn summary(status: &Status) -> String {
    let up = status.peers.iter().filter(|peer| peer.up).count();
    let (peers, leases) = (status.peers.len(), status.leases);
    if !status.quarantine_remaining.is_zero() {
        format!("quarantined: votes in {:.0?}; {up} of {peers} peers", status.quarantine_remaining)
    } else if status.ready {
        format!("ready; {up} of {peers} peers, {leases} leases")
    } else {
        format!("no quorum; {up} of {peers} peers")
    }
}

/// `None` for an empty list.
fn list(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
