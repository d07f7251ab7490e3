//! What clients may do: the current rules of `[[access]]`.
//!
//! A client that sent a token is identified by the token's hash. Each command looks up in the
//! current rules what that hash permits, so a token that was removed permits nothing any more, also
//! on open connections. No token is kept, shown or logged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::config::{Access, NamePattern, TokenHash, Verb};
use paxoslease_node::front::Name;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::watch;

use crate::audit::Audit;
use crate::quota::{Quota, Quotas};

/// The rules that RESP and HTTP share, and the log of what clients did. Clones share them too.
#[derive(Clone)]
pub struct Gate {
    rules: watch::Sender<Arc<Rules>>,
    pub(crate) audit: Audit,
    pub(crate) quotas: Arc<Quotas>,
}

impl Gate {
    /// Without rules, every client that can connect may do everything.
    #[must_use]
    pub fn new(access: &[Access]) -> Self {
        let rules = watch::Sender::new(Arc::new(Rules::new(access)));
        Self { rules, audit: Audit::default(), quotas: Arc::default() }
    }

    /// Whether every client that can connect may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.rules.borrow().is_open()
    }

    /// Replaces the rules.
    pub(crate) fn change(&self, access: &[Access]) {
        self.rules.send_replace(Arc::new(Rules::new(access)));
    }

    /// The current rules, and notice when they change.
    pub(crate) fn rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }
}

impl Default for Gate {
    /// Open to every client.
    fn default() -> Self {
        Self::new(&[])
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({} tokens)", self.rules.borrow().tokens.len())
    }
}

/// The rules between two changes.
pub(crate) struct Rules {
    /// Sorted by hash.
    tokens: Vec<(TokenHash, Bearer)>,
    has_quotas: bool,
}

/// What a token permits.
#[derive(Default)]
struct Bearer {
    name: Option<String>,
    grants: Vec<(Vec<Verb>, Vec<NamePattern>)>,
    /// The lowest quota of its entries.
    leases: Option<u32>,
}

impl Bearer {
    /// The names for which something is permitted.
    fn names(&self, verb: Verb) -> impl Iterator<Item = &NamePattern> {
        let grants = self.grants.iter().filter(move |(may, _)| may.contains(&verb));
        grants.flat_map(|(_, names)| names)
    }
}

/// The place of a token in these rules, and only in these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Why something is not permitted, and what is missing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error("a token is required, and no valid one was sent")]
    NoToken,
    #[error("this token is unknown here")]
    UnknownToken,
    #[error(
        "{} lacks the \"{verb}\" permission{} (may = [\"{verb}\"]{} in [[access]])",
        .bearer.as_ref().map_or("this token".to_owned(), |name| format!("the token of {name:?}")),
        .name.as_ref().map_or(String::new(), |name| format!(" for {name:?}")),
        if .name.is_some() { " and a matching pattern in names" } else { "" }
    )]
    NotPermitted { token: TokenHash, bearer: Option<String>, verb: Verb, name: Option<String> },
}

/// Whether something is permitted.
type Verdict = Result<(), Denied>;

/// Reduces the status of a cell to what a token may see that does not administrate the cell:
/// whether leases can be acquired, and why not.
pub(crate) fn shorten_status(status: &mut serde_json::Value) {
    const KEPT: [&str; 16] = [
        "cell",
        "node",
        "role",
        "members",
        "membership",
        "epoch",
        "change",
        "clients",
        "max_lease_ms",
        "ready",
        "quarantine_remaining_ms",
        "has_record",
        "disk_problem",
        "peers",
        "problem",
        "version",
    ];
    // Clients find the other members by their addresses for clients.
    const KEPT_OF_PEERS: [&str; 5] =
        ["node", "up", "quarantine_remaining_ms", "problem", "clients"];
    let Some(fields) = status.as_object_mut() else { return };
    fields.retain(|key, _| KEPT.contains(&key.as_str()));
    let peers = fields.get_mut("peers").and_then(serde_json::Value::as_array_mut);
    for peer in peers.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
        peer.retain(|key, _| KEPT_OF_PEERS.contains(&key.as_str()));
    }
}

impl Denied {
    /// The labels in `paxoslease_refused_total`.
    pub(crate) const REASONS: [&'static str; 3] = ["no_token", "unknown_token", "not_permitted"];

    /// The known token that was denied something.
    pub(crate) const fn token(&self) -> Option<TokenHash> {
        match self {
            Self::NoToken | Self::UnknownToken => None,
            Self::NotPermitted { token, .. } => Some(*token),
        }
    }

    /// The place of its label there.
    pub(crate) const fn reason(&self) -> usize {
        match self {
            Self::NoToken => 0,
            Self::UnknownToken => 1,
            Self::NotPermitted { .. } => 2,
        }
    }
}

/// Whether a pattern matches a name, or that of its semaphore if the name is that of a permit. A
/// permit of a permit has no part in that: one name would stand for any number of leases.
fn covers(pattern: &NamePattern, name: &str) -> bool {
    let semaphore = || Name::new(name).ok()?.as_permit().map(|(semaphore, _)| semaphore);
    pattern.fits(name) || semaphore().is_some_and(|semaphore| pattern.fits(semaphore.as_str()))
}

/// Whether a pattern can cover a name with this prefix, such as `gpu#` for the permits of `gpu`.
fn covers_within(pattern: &NamePattern, prefix: &str) -> bool {
    let number = || prefix.strip_prefix(pattern.stem())?.strip_prefix('#');
    let is_of_permits = || number().is_some_and(|number| !number.contains('#'));
    pattern.meets(prefix) || (pattern.prefix().is_none() && is_of_permits())
}

impl Rules {
    fn new(access: &[Access]) -> Self {
        let mut bearers = BTreeMap::<TokenHash, Bearer>::new();
        for Access { name, token_sha256, names, may, leases, .. } in access {
            let bearer = bearers.entry(*token_sha256).or_default();
            bearer.leases = bearer.leases.into_iter().chain(*leases).min();
            bearer.name = bearer.name.take().or_else(|| name.clone());
            bearer.grants.push((may.clone(), names.clone()));
        }
        let has_quotas = bearers.values().any(|bearer| bearer.leases.is_some());
        Self { tokens: bearers.into_iter().collect(), has_quotas }
    }

    /// The name of a token, if it has one.
    pub(crate) fn name(&self, place: Option<Place>) -> Option<String> {
        self.token(place).ok()?.1.name.clone()
    }

    pub(crate) fn quota(&self, place: Option<Place>) -> Option<Quota> {
        let (token, bearer) = self.token(place).ok()?;
        bearer.leases.map(|most| Quota { token: *token, most })
    }

    /// Whether any token has a quota.
    pub(crate) const fn has_quotas(&self) -> bool {
        self.has_quotas
    }

    /// Whether every client that can connect may do everything.
    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The hash of a known token. Takes the same time for every token, known or not.
    pub(crate) fn recognise(&self, token: &[u8]) -> Result<TokenHash, Denied> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut known = Choice::from(0);
        for (token, _) in &self.tokens {
            known |= token.as_bytes().ct_eq(&hash);
        }
        if known.into() { Ok(TokenHash::new(hash)) } else { Err(Denied::UnknownToken) }
    }

    /// The place of a token that was recognised before, if it is still known.
    pub(crate) fn place(&self, hash: TokenHash) -> Option<Place> {
        let place = self.tokens.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        u32::try_from(place).ok().map(Place)
    }

    fn token(&self, place: Option<Place>) -> Result<&(TokenHash, Bearer), Denied> {
        let token = place.and_then(|Place(place)| self.tokens.get(place as usize));
        token.ok_or(Denied::NoToken)
    }

    /// Whether there is a valid token, if one is required.
    pub(crate) fn admits(&self, place: Option<Place>) -> Verdict {
        if self.is_open() { Ok(()) } else { self.token(place).map(drop) }
    }

    /// Whether something is permitted for a name.
    pub(crate) fn permits(&self, place: Option<Place>, verb: Verb, name: &str) -> Verdict {
        self.permits_some(place, verb, Some(name), |pattern| covers(pattern, name))
    }

    /// Like [`Self::permits`], without the reason.
    pub(crate) fn allows(&self, place: Option<Place>, verb: Verb, name: &str) -> bool {
        let covers =
            |(_, bearer): &(_, Bearer)| bearer.names(verb).any(|names| covers(names, name));
        self.is_open() || self.token(place).is_ok_and(covers)
    }

    /// Whether something is permitted for any name with this prefix.
    pub(crate) fn permits_within(&self, place: Option<Place>, verb: Verb, prefix: &str) -> Verdict {
        let name = Some(prefix).filter(|prefix| !prefix.is_empty());
        self.permits_some(place, verb, name, |pattern| covers_within(pattern, prefix))
    }

    /// Whether the cell as a whole may be administrated, which takes `admin` for all names.
    pub(crate) fn permits_cell(&self, place: Option<Place>) -> Verdict {
        self.permits_some(place, Verb::Admin, Some("*"), |pattern| pattern.prefix() == Some(""))
    }

    /// Whether the status of the cell is permitted: all of it to a token that administrates the
    /// cell, a short form to one with `read` or `admin` for some name.
    pub(crate) fn status_verb(&self, place: Option<Place>) -> Result<Verb, Denied> {
        let Err(denied) = self.permits_cell(place) else { return Ok(Verb::Admin) };
        let is_for_some = |verb| self.permits_within(place, verb, "").is_ok();
        if is_for_some(Verb::Read) || is_for_some(Verb::Admin) {
            Ok(Verb::Read)
        } else {
            Err(denied)
        }
    }

    /// Whether any name that a pattern matches may be read.
    pub(crate) fn permits_watch(&self, place: Option<Place>, pattern: &NamePattern) -> Verdict {
        match pattern.prefix() {
            Some(prefix) => self.permits_within(place, Verb::Read, prefix),
            None => self.permits(place, Verb::Read, pattern.stem()),
        }
    }

    fn permits_some(
        &self,
        place: Option<Place>,
        verb: Verb,
        name: Option<&str>,
        suits: impl Fn(&NamePattern) -> bool,
    ) -> Verdict {
        if self.is_open() {
            return Ok(());
        }
        let (token, bearer) = self.token(place)?;
        if bearer.names(verb).any(suits) {
            return Ok(());
        }
        let name = name.map(str::to_owned);
        Err(Denied::NotPermitted { token: *token, bearer: bearer.name.clone(), verb, name })
    }
}
