//! BLPOP and BRPOP on a signal list: wait until a name is free.
//!
//! Some libraries wait for a list that the script of a release pushes to. No list is kept here.
//! The wait ends when the lease is released or expires, in the order in which clients began to
//! wait at this node. A hint may be lost, so a quorum is asked as well: after a second, and less
//! often the longer the client waits, because many may wait for a long time.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use paxoslease_node::front::{Instant, ShardHandle};

use super::super::session::Session;
use super::super::{Common, Turn};
use super::keys::{Keys, State, Stop};
use super::operation::OperationId;
use super::program::Program;
use super::script::Reply;

/// How many commands of one connection may wait. Replies come in order, so one is enough for most.
pub(in super::super) const WAITS_MAX: usize = 64;

/// Bounds on the time after which a quorum is asked whether the name is free.
const RECHECK_MIN: Duration = Duration::from_secs(1);
const RECHECK_MAX: Duration = Duration::from_secs(30);

/// When to ask a quorum again, after a client has waited for this long.
fn recheck_after(waited: Duration) -> Duration {
    waited.clamp(RECHECK_MIN, RECHECK_MAX)
}

/// How libraries name the list of a lock: the beginning of the list's key, and that of the lock's.
const CONVENTIONS: [(&[u8], &[u8]); 2] = [(b"lock-signal:", b"lock:"), (b"lock.event:", b"lock:")];

/// The key of the lock that a signal list belongs to, as some libraries name them.
pub(super) fn lock_of(list: &[u8]) -> Option<Vec<u8>> {
    let lock =
        |(signal, lock): &(&[u8], &[u8])| Some([*lock, list.strip_prefix(*signal)?].concat());
    CONVENTIONS.iter().find_map(lock)
}

/// What a client waits for.
pub(super) struct Wait {
    /// The list, for the reply.
    pub(super) list: Vec<u8>,
    /// The key of the lock.
    pub(super) lock: Vec<u8>,
    /// The name of its lease.
    pub(super) name: String,
    pub(super) began_at: Instant,
    pub(super) ends_at: Option<Instant>,
}

impl Wait {
    /// The reply once the name is free, and nil until then.
    pub(super) fn run(&self, keys: &mut Keys) -> Reply {
        match keys.read(&self.lock) {
            Ok(State::Absent) => self.signal(),
            Ok(_) => Reply::Nil,
            Err(Stop(text)) => Reply::Error(text.into_bytes()),
        }
    }

    fn signal(&self) -> Reply {
        Reply::Array(vec![Reply::Bulk(self.list.clone()), Reply::Bulk(b"1".to_vec())])
    }
}

/// The clients of one shard's thread that wait.
#[derive(Default)]
pub(in super::super) struct Waits {
    by_name: BTreeMap<String, VecDeque<OperationId>>,
    /// When to look at which of them.
    due: BTreeSet<(Instant, OperationId)>,
    /// The name that each of them waits for, and when it is due.
    waiting: BTreeMap<OperationId, (String, Instant)>,
    /// How many of them each session has, also while they are asked for the first time.
    by_session: BTreeMap<usize, usize>,
}

impl Waits {
    fn is_first(&self, id: OperationId) -> bool {
        let name = self.waiting.get(&id).map(|(name, _)| name);
        let queue = name.and_then(|name| self.by_name.get(name));
        queue.and_then(VecDeque::front) == Some(&id)
    }

    /// How many a session has.
    pub(super) fn of(&self, session: usize) -> usize {
        self.by_session.get(&session).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, session: usize) {
        *self.by_session.entry(session).or_default() += 1;
    }

    fn discount(&mut self, session: usize) {
        if let Entry::Occupied(mut entry) = self.by_session.entry(session) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    pub(in super::super) fn next_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Session {
    /// The name is held: waits for a hint, or until it is time to ask again.
    pub(super) fn begin_wait(&mut self, turn: &mut Turn<'_, '_>, id: OperationId) {
        let now = turn.shard.now();
        let Some(operation) = turn.common.operations.get(id) else { return };
        let Program::Wait(Wait { name, began_at, ends_at, .. }) = &operation.program else {
            return;
        };
        if ends_at.is_some_and(|at| at <= now) {
            return self.end_wait(turn, id, false);
        }
        let recheck_at = now.after(recheck_after(now.since(*began_at)));
        let at = ends_at.map_or(recheck_at, |at| at.min(recheck_at));
        let waits = &mut turn.common.waits;
        waits.due.insert((at, id));
        if waits.waiting.insert(id, (name.clone(), at)).is_none() {
            waits.by_name.entry(name.clone()).or_default().push_back(id);
            turn.common.listen(turn.shard, true);
        }
    }

    /// Replies to a client that waits: the name is free, or its time is over.
    fn end_wait(&mut self, turn: &mut Turn<'_, '_>, id: OperationId, is_free: bool) {
        let Some(operation) = turn.common.operations.take(id) else { return };
        let Program::Wait(wait) = &operation.program else { return };
        let reply = if is_free { wait.signal() } else { Reply::Nil };
        self.finish(turn, id, operation, &reply);
    }

    /// It is time to look at a client that waits. Only the first at a name asks a quorum, because
    /// only the first would be told.
    pub(in super::super) fn look_at_wait(&mut self, turn: &mut Turn<'_, '_>, id: OperationId) {
        if !turn.common.operations.waits(id) {
            return;
        }
        if turn.common.waits.is_first(id) {
            turn.common.operations.forget_keys(id);
            self.begin(turn, id);
        } else {
            self.begin_wait(turn, id);
        }
    }

    /// A name that a client waits for is free.
    pub(in super::super) fn wake(&mut self, turn: &mut Turn<'_, '_>, id: OperationId) {
        self.end_wait(turn, id, true);
    }
}

impl Common {
    /// The client that has waited longest for a name that became free.
    pub(in super::super) fn first_waiting(&mut self, name: &str) -> Option<OperationId> {
        let queue = self.waits.by_name.get(name)?;
        queue.iter().copied().find(|id| self.operations.waits(*id))
    }

    /// The clients that are to be looked at now.
    pub(in super::super) fn due_waits(&mut self, now: Instant) -> Vec<OperationId> {
        let mut due = Vec::new();
        while let Some((at, id)) = self.waits.due.first().copied()
            && at <= now
        {
            self.waits.due.pop_first();
            due.push(id);
        }
        due
    }

    /// A client no longer waits.
    pub(super) fn forget_wait(
        &mut self,
        shard: &mut ShardHandle<'_>,
        session: usize,
        id: OperationId,
    ) {
        self.waits.discount(session);
        let Some((name, at)) = self.waits.waiting.remove(&id) else { return };
        self.waits.due.remove(&(at, id));
        if let Some(queue) = self.waits.by_name.get_mut(&name) {
            queue.retain(|waiting| *waiting != id);
            if queue.is_empty() {
                self.waits.by_name.remove(&name);
            }
        }
        self.listen(shard, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_waits_for_long_asks_seldom() {
        let (mut waited, mut asked) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(3600) {
            waited += recheck_after(waited);
            asked += 1;
        }
        assert!((100..150).contains(&asked), "{asked} times in an hour");
        assert_eq!(
            recheck_after(Duration::ZERO),
            RECHECK_MIN,
            "a lost hint costs a second at first"
        );
    }
}
