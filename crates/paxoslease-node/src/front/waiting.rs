//! Callers on other threads than the node's, and their answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use paxoslease_core::{Label, Tenure};

use crate::request::Answer;

/// The callers outside the node's threads that wait for an answer.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    /// By the number of their request; no number is used twice.
    by_id: BTreeMap<u64, Waiter>,
    ids: u64,
}

enum Waiter {
    Waits(oneshot::Sender<Answer>),
    /// P8: the caller of this acquire has left. A lease that it is granted is released.
    Gone(Label),
}

impl Waiting {
    pub(crate) fn add(&self, reply: oneshot::Sender<Answer>) -> u64 {
        let mut waiters = self.lock();
        waiters.ids += 1;
        let id = waiters.ids;
        waiters.by_id.insert(id, Waiter::Waits(reply));
        id
    }

    /// P8: the caller of this acquire has left. `false` when it was answered before.
    pub(crate) fn leave(&self, id: u64, label: &Label) -> bool {
        let mut waiters = self.lock();
        let Some(waiter) = waiters.by_id.get_mut(&id) else { return false };
        *waiter = Waiter::Gone(label.clone());
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an answer over. Returns the lease that was granted to a caller that has left.
    pub(crate) fn answer(&self, id: u64, answer: Answer) -> Option<(Label, Tenure)> {
        let waiter = self.lock().by_id.remove(&id)?;
        match (waiter, answer) {
            (Waiter::Waits(reply), answer) => {
                // The caller of any request except an acquire may have left.
                let _left = reply.send(answer);
                None
            }
            (Waiter::Gone(label), answer) => {
                let Answer::Granted { tenure, .. } = answer else { return None };
                Some((answer.granted_label(&label)?, tenure))
            }
        }
    }

    /// The node is gone: refuses every request that waits.
    pub(crate) fn close(&self) {
        let left = std::mem::take(&mut self.lock().by_id);
        for waiter in left.into_values() {
            if let Waiter::Waits(reply) = waiter {
                let _left = reply.send(Answer::Stopping);
            }
        }
    }
}
