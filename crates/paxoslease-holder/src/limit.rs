//! The limits of a node that a client can reach.

/// A limit of a node that a client can reach. Its name is the label of `paxoslease_limited_total`
/// and follows the word `BUSY` in a node's reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Connections of a node.
    Connections,
    /// Commands of a connection under way.
    InflightPerConnection,
    /// Acquires of a connection, per second.
    AcquiresPerSecond,
    /// Requests under way in a shard.
    Inflight,
    /// Requests that wait in a shard.
    Waiters,
    /// Names a shard keeps, by number or by bytes.
    Leases,
    /// A client that sent so much while its acquire waited that its end could not be noticed.
    OutOfSight,
    /// Messages of a watch that a slow reader missed.
    Watch,
    /// A client that read nothing for too long.
    SlowReader,
    /// A RESP request that is too long or malformed.
    Framing,
    /// A client that did not finish a request in time.
    HalfRequest,
    /// A name that is too long, empty or not a text.
    Name,
    /// A holder that is too long or not a text.
    Holder,
    /// Patterns that one connection watches.
    Patterns,
    /// Patterns that all connections of a shard watch.
    Watchers,
    /// Lists that wait in a shard.
    Lists,
    /// Leases of a token.
    Quota,
}

impl Limit {
    /// Every limit with its name, in the order of their discriminants.
    pub const ALL: [(Self, &'static str); 17] = [
        (Self::Connections, "connections"),
        (Self::InflightPerConnection, "inflight_per_connection"),
        (Self::AcquiresPerSecond, "acquires_per_second"),
        (Self::Inflight, "inflight"),
        (Self::Waiters, "waiters"),
        (Self::Leases, "leases"),
        (Self::OutOfSight, "out_of_sight"),
        (Self::Watch, "watch"),
        (Self::SlowReader, "slow_reader"),
        (Self::Framing, "framing"),
        (Self::HalfRequest, "half_request"),
        (Self::Name, "name"),
        (Self::Holder, "holder"),
        (Self::Patterns, "patterns"),
        (Self::Watchers, "watchers"),
        (Self::Lists, "lists"),
        (Self::Quota, "quota"),
    ];

    /// The name of this limit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The limit with this name; `None` for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(limit, _)| limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_own_place_and_name() {
        for (place, (limit, name)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!((limit as usize, limit.name()), (place, name));
            assert_eq!(Limit::from_name(name), Some(limit));
        }
        assert_eq!(Limit::from_name("patience"), None);
    }
}
