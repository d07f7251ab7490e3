//! A node's status as lines of a log: at every change of what matters, and every minute.
//!
//! Counts its looks instead of reading a clock.

use std::time::Duration;

use paxoslease::Status;
use tracing::{info, warn};

/// How often to look. A change that is over before the next look goes unnoticed here; the node
/// logs for itself who connects and leaves.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After this many looks without a change, the status is logged all the same: a minute.
const LOOKS_WITHOUT_CHANGE_MAX: u32 = 120;
/// How many looks between two lines that count a quarantine down: ten seconds.
const LOOKS_PER_COUNTDOWN: u32 = 20;

/// What was logged last, and how long ago.
#[derive(Default)]
pub(super) struct Report {
    last: Option<Essence>,
    looks: u32,
}

/// What is worth a line when it changes.
#[derive(PartialEq, Eq)]
struct Essence {
    ready: bool,
    quarantined: bool,
    up: Vec<(u16, bool)>,
    disk_problem: bool,
}

impl Essence {
    fn of(status: &Status) -> Self {
        Self {
            ready: status.ready,
            quarantined: !status.quarantine_remaining.is_zero(),
            up: status.peers.iter().map(|peer| (peer.node, peer.up)).collect(),
            disk_problem: status.disk_problem.is_some(),
        }
    }
}

impl Report {
    /// Logs what there is to say. Returns whether the status was worth a line.
    pub(super) fn look(&mut self, status: &Status) -> bool {
        let essence = Essence::of(status);
        self.looks += 1;
        let was_quarantined = self.last.as_ref().is_some_and(|last| last.quarantined);
        if was_quarantined && !essence.quarantined {
            info!("votes now");
        }
        let changed = self.last.as_ref() != Some(&essence);
        let due = changed || self.looks >= LOOKS_WITHOUT_CHANGE_MAX;
        if due {
            self.looks = 0;
            log(status);
        } else if essence.quarantined && self.looks.is_multiple_of(LOOKS_PER_COUNTDOWN) {
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

/// In a few words, for systemd.
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

/// Nothing at all if there are none.
fn list(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
