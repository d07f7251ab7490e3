//! The number of leases of each token through this node, where `leases` of its `[[access]]` bounds
//! it.
//!
//! A lease counts from an acquire or a renewal through this node until this node sees its end: a
//! release by any client through any node, the next tenure, or the end of the ttl that this node
//! last granted or renewed. Each node counts for itself. Who acquired a lease is stored nowhere, so
//! after a restart a lease counts from its next renewal on. No lease is taken away: an acquire over
//! the quota is refused before it is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paxoslease_node::front::{Instant, Name};

use crate::config::TokenHash;

/// A lease: the hash of its name, and its fence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LeaseKey {
    name: u64,
    fence: u64,
}

impl LeaseKey {
    fn new(name: Name<'_>, fence: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        name.as_bytes().hash(&mut hasher);
        Self { name: hasher.finish(), fence }
    }
}

/// The quota of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quota {
    pub(crate) token: TokenHash,
    pub(crate) most: u32,
}

/// What counts towards the quotas of all tokens.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// The leases of each token, and its acquires under way.
    taken: BTreeMap<TokenHash, usize>,
    leases: BTreeMap<LeaseKey, Lease>,
    /// The same leases, sorted by their end.
    by_end: BTreeSet<(Instant, LeaseKey)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    token: TokenHash,
    ends_at: Instant,
}

impl Quotas {
    /// Room for the lease of an acquire that is about to begin. An error is the quota, which is
    /// used up.
    pub(crate) fn claim(self: &Arc<Self>, quota: Quota, now: Instant) -> Result<Claim, u32> {
        let Quota { token, most } = quota;
        let mut counted = self.counted();
        while let Some((ends_at, lease)) = counted.by_end.first().copied()
            && ends_at <= now
        {
            counted.forget(lease);
        }
        let taken = counted.taken.entry(token).or_default();
        if *taken >= most as usize {
            return Err(most);
        }
        *taken += 1;
        Ok(Claim { quotas: Arc::clone(self), token, lease: None })
    }

    /// A lease has ended, or is being released.
    pub(crate) fn ended(&self, name: Name<'_>, fence: u64) {
        self.counted().forget(LeaseKey::new(name, fence));
    }

    /// A tenure has begun, so those before it are over.
    pub(crate) fn began(&self, name: Name<'_>, fence: u64) {
        let (first, next) = (LeaseKey::new(name, 0), LeaseKey::new(name, fence));
        let mut counted = self.counted();
        while let Some((over, _)) = counted.leases.range(first..next).next() {
            let over = *over;
            counted.forget(over);
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// A lease that has room already lasts until `ends_at`. If it was counted before, it gives that
    /// room back: the answers to its acquire and to its renewal may come in any order.
    fn count(&mut self, lease: LeaseKey, token: TokenHash, ends_at: Instant) {
        self.forget(lease);
        self.leases.insert(lease, Lease { token, ends_at });
        self.by_end.insert((ends_at, lease));
    }

    fn forget(&mut self, lease: LeaseKey) {
        if let Some(Lease { token, ends_at }) = self.leases.remove(&lease) {
            self.by_end.remove(&(ends_at, lease));
            self.make_room(token);
        }
    }

    fn make_room(&mut self, token: TokenHash) {
        let taken = self.taken.get_mut(&token).expect("each lease and claim was counted");
        *taken -= 1;
        if *taken == 0 {
            self.taken.remove(&token);
        }
    }
}

/// An acquire under way. Dropping it gives its room back, unless it was granted.
#[derive(Debug)]
pub(crate) struct Claim {
    quotas: Arc<Quotas>,
    token: TokenHash,
    lease: Option<LeaseKey>,
}

impl Claim {
    /// The acquire was granted. Its lease counts until `ends_at`.
    pub(crate) fn granted(&mut self, name: Name<'_>, fence: u64, ends_at: Instant) {
        if self.lease.is_none() {
            let lease = LeaseKey::new(name, fence);
            self.lease = Some(lease);
            self.quotas.counted().count(lease, self.token, ends_at);
        }
    }

    /// The grant was never sent, and is given back.
    pub(crate) fn give_back(self) {
        if let Some(lease) = self.lease {
            self.quotas.counted().forget(lease);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.lease.is_none() {
            self.quotas.counted().make_room(self.token);
        }
    }
}

/// A renewal under way by a token with a quota.
#[derive(Debug)]
pub(crate) struct Renewal {
    quotas: Arc<Quotas>,
    token: TokenHash,
    lease: LeaseKey,
}

impl Renewal {
    pub(crate) fn new(quotas: &Arc<Quotas>, quota: Quota, name: Name<'_>, fence: u64) -> Self {
        let lease = LeaseKey::new(name, fence);
        Self { quotas: Arc::clone(quotas), token: quota.token, lease }
    }

    /// The lease was renewed until `ends_at`. It counts from now on, if it did not before.
    pub(crate) fn renewed(self, ends_at: Instant) {
        let mut counted = self.quotas.counted();
        let before = counted.leases.get(&self.lease);
        let token = before.map_or(self.token, |before| before.token);
        *counted.taken.entry(token).or_default() += 1;
        counted.count(self.lease, token, ends_at);
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

    fn quota(most: u32) -> Quota {
        Quota { token: TokenHash::new([7; 32]), most }
    }

    fn grant(quotas: &Arc<Quotas>, most: u32, text: &str, now: Instant) -> Result<(), u32> {
        let claim = quotas.claim(quota(most), now);
        claim.map(|mut claim| claim.granted(name(text), 1, now.after(TTL)))
    }

    fn renew(quotas: &Arc<Quotas>, text: &str, ends_at: Instant) {
        Renewal::new(quotas, quota(0), name(text), 1).renewed(ends_at);
    }

    #[test]
    fn leases_count_until_they_end() {
        let (quotas, now) = (Arc::<Quotas>::default(), Instant::ZERO);
        assert_eq!(grant(&quotas, 2, "a", now), Ok(()));
        assert_eq!(grant(&quotas, 2, "b", now), Ok(()));
        assert_eq!(grant(&quotas, 2, "c", now), Err(2));
        quotas.ended(name("a"), 2);
        assert_eq!(grant(&quotas, 2, "c", now), Err(2), "another tenure");
        quotas.ended(name("a"), 1);
        assert_eq!(grant(&quotas, 2, "c", now), Ok(()));
        renew(&quotas, "c", now.after(2 * TTL));
        let later = now.after(TTL);
        assert_eq!(grant(&quotas, 2, "d", later), Ok(()), "b has expired");
        assert_eq!(grant(&quotas, 2, "e", later), Err(2), "c was renewed");
        assert_eq!(grant(&quotas, 3, "e", later), Ok(()));
        quotas.began(name("d"), 1);
        assert_eq!(grant(&quotas, 3, "f", later), Err(3), "d goes on");
        quotas.began(name("d"), 9);
        assert_eq!(grant(&quotas, 3, "f", later), Ok(()), "the next tenure of d began");
    }

    #[test]
    fn acquires_count_unless_they_are_not_granted() {
        let (quotas, now) = (Arc::<Quotas>::default(), Instant::ZERO);
        let claim = quotas.claim(quota(1), now).expect("room");
        assert_eq!(quotas.claim(quota(1), now).err(), Some(1));
        let other = Quota { token: TokenHash::new([8; 32]), most: 1 };
        assert!(quotas.claim(other, now).is_ok(), "another token");
        drop(claim);
        let mut claim = quotas.claim(quota(1), now).expect("room");
        claim.granted(name("a"), 1, now.after(TTL));
        assert_eq!(quotas.claim(quota(1), now).err(), Some(1));
        claim.give_back();
        assert!(quotas.claim(quota(1), now).is_ok());
    }

    #[test]
    fn a_lease_that_is_renewed_before_its_grant_is_seen_counts_once() {
        let (quotas, now) = (Arc::<Quotas>::default(), Instant::ZERO);
        let mut claim = quotas.claim(quota(2), now).expect("room");
        renew(&quotas, "a", now.after(3 * TTL));
        claim.granted(name("a"), 1, now.after(2 * TTL));
        assert_eq!(grant(&quotas, 2, "b", now), Ok(()), "a counts once");
        assert_eq!(grant(&quotas, 2, "c", now), Err(2));
        assert_eq!(grant(&quotas, 2, "c", now.after(4 * TTL)), Ok(()), "both are over");
        assert_eq!(quotas.counted().by_end.len(), 1);
    }

    #[test]
    fn a_lease_from_before_a_restart_counts_from_its_renewal_on() {
        let (quotas, now) = (Arc::<Quotas>::default(), Instant::ZERO);
        renew(&quotas, "a", now.after(TTL));
        assert_eq!(grant(&quotas, 1, "b", now), Err(1));
        quotas.ended(name("a"), 1);
        assert_eq!(grant(&quotas, 1, "b", now), Ok(()));
        assert_eq!(quotas.counted().leases.len(), 1);
    }
}
