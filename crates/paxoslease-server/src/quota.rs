//! The number of leases of a token through this node, where `leases` of its `[[access]]` bounds it.
//!
//! A node sees only its own requests. So a lease counts from an acquire through this node until a
//! release or the end of the ttl that this node last saw. Each node counts for itself. No lease is
//! taken away: an acquire over the quota is refused before it is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paxoslease_node::front::{Instant, Name};

/// A lease: the hash of its name, and its fence.
type LeaseKey = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Quota(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    most: u32,
    /// Acquires under way.
    claims: usize,
    ends_at: BTreeMap<LeaseKey, Instant>,
    /// The same leases, sorted by their end.
    by_end: BTreeSet<(Instant, LeaseKey)>,
}

impl Quota {
    /// Sets the bound. Leases that are counted stay counted.
    pub(crate) fn set(&self, most: u32) {
        self.counted().most = most;
    }

    /// Room for the lease of an acquire that is about to begin. An error is the quota, which is
    /// used up.
    pub(crate) fn claim(self: &Arc<Self>, now: Instant) -> Result<Claim, u32> {
        let mut counted = self.counted();
        while let Some((ends_at, lease)) = counted.by_end.first().copied()
            && ends_at <= now
        {
            counted.forget(lease);
        }
        if counted.ends_at.len() + counted.claims >= counted.most as usize {
            return Err(counted.most);
        }
        counted.claims += 1;
        Ok(Claim { quota: Arc::clone(self), lease: None })
    }

    /// A lease that is counted is being renewed.
    pub(crate) fn renews(&self, name: Name<'_>, fence: u64, ends_at: Instant) {
        let mut counted = self.counted();
        let lease = lease(name, fence);
        if counted.ends_at.get(&lease).is_some_and(|known| *known < ends_at) {
            counted.forget(lease);
            counted.count(lease, ends_at);
        }
    }

    /// A lease is being released.
    pub(crate) fn releases(&self, name: Name<'_>, fence: u64) {
        self.counted().forget(lease(name, fence));
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn count(&mut self, lease: LeaseKey, ends_at: Instant) {
        self.ends_at.insert(lease, ends_at);
        self.by_end.insert((ends_at, lease));
    }

    fn forget(&mut self, lease: LeaseKey) {
        if let Some(ends_at) = self.ends_at.remove(&lease) {
            self.by_end.remove(&(ends_at, lease));
        }
    }
}

fn lease(name: Name<'_>, fence: u64) -> LeaseKey {
    let mut hasher = DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    (hasher.finish(), fence)
}

/// An acquire under way. Dropping it gives its room back, unless it was granted.
#[derive(Debug)]
pub(crate) struct Claim {
    quota: Arc<Quota>,
    lease: Option<LeaseKey>,
}

impl Claim {
    /// The acquire was granted. Its lease counts until `ends_at`.
    pub(crate) fn granted(&mut self, name: Name<'_>, fence: u64, ends_at: Instant) {
        if self.lease.is_none() {
            let lease = lease(name, fence);
            self.lease = Some(lease);
            let mut counted = self.quota.counted();
            counted.claims -= 1;
            counted.count(lease, ends_at);
        }
    }

    /// The grant was never sent, and is given back.
    pub(crate) fn give_back(self) {
        if let Some(lease) = self.lease {
            self.quota.counted().forget(lease);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.lease.is_none() {
            self.quota.counted().claims -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn name(text: &str) -> Name<'_> {
        Name::new(text).expect("a name")
    }

    fn of(most: u32) -> Arc<Quota> {
        let quota = Arc::<Quota>::default();
        quota.set(most);
        quota
    }

    fn grant(quota: &Arc<Quota>, text: &str, fence: u64, now: Instant) -> Result<(), u32> {
        quota.claim(now).map(|mut claim| claim.granted(name(text), fence, now.after(TTL)))
    }

    #[test]
    fn leases_count_until_they_are_released_or_expire() {
        let (quota, now) = (of(2), Instant::ZERO);
        assert_eq!(grant(&quota, "a", 1, now), Ok(()));
        assert_eq!(grant(&quota, "b", 1, now), Ok(()));
        assert_eq!(grant(&quota, "c", 1, now), Err(2));
        quota.releases(name("a"), 2);
        assert_eq!(grant(&quota, "c", 1, now), Err(2), "another tenure");
        quota.releases(name("a"), 1);
        assert_eq!(grant(&quota, "c", 1, now), Ok(()));
        quota.renews(name("c"), 1, now.after(2 * TTL));
        let later = now.after(TTL);
        assert_eq!(grant(&quota, "d", 1, later), Ok(()), "b has expired");
        assert_eq!(grant(&quota, "e", 1, later), Err(2), "c was renewed");
        quota.set(3);
        assert_eq!(grant(&quota, "e", 1, later), Ok(()));
    }

    #[test]
    fn acquires_count_unless_they_are_not_granted() {
        let (quota, now) = (of(1), Instant::ZERO);
        let claim = quota.claim(now).expect("room");
        assert_eq!(quota.claim(now).err(), Some(1));
        drop(claim);
        let mut claim = quota.claim(now).expect("room");
        claim.granted(name("a"), 1, now.after(TTL));
        assert_eq!(quota.claim(now).err(), Some(1));
        claim.give_back();
        assert!(quota.claim(now).is_ok());
    }

    #[test]
    fn renewals_of_leases_that_are_not_counted_take_no_memory() {
        let quota = of(1);
        for fence in 0..100 {
            quota.renews(name("a"), fence, Instant::MAX);
        }
        assert!(quota.counted().ends_at.is_empty());
    }
}
