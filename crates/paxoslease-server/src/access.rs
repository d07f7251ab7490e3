//! What clients may do: the current rules of `[[access]]`.
//!
//! A client that sent a token is identified by the token's hash. Each command looks up in the
//! current rules what that hash permits, so a token that was removed permits nothing any more, also
//! on open connections. No token is kept, shown or logged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::config::{Access, NamePattern, TokenHash, Verb};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::watch;

use crate::quota::Quota;

/// The rules that RESP and HTTP share. Clones share them too.
#[derive(Clone)]
pub struct Gate {
    rules: watch::Sender<Arc<Rules>>,
}

impl Gate {
    /// Without rules, every client that can connect may do everything.
    #[must_use]
    pub fn new(access: &[Access]) -> Self {
        Self { rules: watch::Sender::new(Arc::new(Rules::new(access))) }
    }

    /// Whether every client that can connect may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.rules.borrow().is_open()
    }

    /// Replaces the rules.
    pub(crate) fn change(&self, access: &[Access]) {
        self.rules.send_modify(|rules| *rules = Arc::new(Rules::new(access).after(rules)));
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
}

/// What a token permits.
#[derive(Default)]
struct Bearer {
    name: Option<String>,
    grants: Vec<(Vec<Verb>, Vec<NamePattern>)>,
    /// The lowest quota of its entries, and the leases that count towards it.
    leases: Option<(u32, Arc<Quota>)>,
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
    #[error("this node asks for a token, and you have sent no valid one")]
    NoToken,
    #[error("this node does not know that token")]
    UnknownToken,
    #[error(
        "{} may not {verb}{}; that takes an entry of [[access]] with {:?} in may{}",
        .bearer.as_ref().map_or("this token".to_owned(), |name| format!("the token of {name:?}")),
        .name.as_ref().map_or(String::new(), |name| format!(" {name:?}")),
        .verb.to_string(),
        if .name.is_some() { " and a fitting pattern in names" } else { "" }
    )]
    NotPermitted { bearer: Option<String>, verb: Verb, name: Option<String> },
}

impl Denied {
    /// The labels in `paxoslease_refused_total`.
    pub(crate) const REASONS: [&'static str; 3] = ["no_token", "unknown_token", "not_permitted"];

    /// The place of its label there.
    pub(crate) const fn reason(&self) -> usize {
        match self {
            Self::NoToken => 0,
            Self::UnknownToken => 1,
            Self::NotPermitted { .. } => 2,
        }
    }
}

impl Rules {
    fn new(access: &[Access]) -> Self {
        let mut bearers = BTreeMap::<TokenHash, Bearer>::new();
        for Access { name, token_sha256, names, may, leases, .. } in access {
            let bearer = bearers.entry(*token_sha256).or_default();
            if let Some(most) = *leases
                && bearer.leases.as_ref().is_none_or(|(known, _)| most < *known)
            {
                let (_, quota) = bearer.leases.get_or_insert_with(Default::default);
                quota.set(most);
                bearer.leases = Some((most, Arc::clone(quota)));
            }
            bearer.name = bearer.name.take().or_else(|| name.clone());
            bearer.grants.push((may.clone(), names.clone()));
        }
        Self { tokens: bearers.into_iter().collect() }
    }

    /// These rules, with the leases that counted towards quotas before.
    fn after(mut self, before: &Self) -> Self {
        for (hash, bearer) in &mut self.tokens {
            let Some((most, quota)) = &mut bearer.leases else { continue };
            let known = before.place(*hash).and_then(|place| before.quota(Some(place)));
            if let Some(known) = known {
                known.set(*most);
                *quota = Arc::clone(known);
            }
        }
        self
    }

    pub(crate) fn quota(&self, place: Option<Place>) -> Option<&Arc<Quota>> {
        self.bearer(place).ok()?.leases.as_ref().map(|(_, quota)| quota)
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

    fn bearer(&self, place: Option<Place>) -> Result<&Bearer, Denied> {
        let token = place.and_then(|Place(place)| self.tokens.get(place as usize));
        token.map(|(_, bearer)| bearer).ok_or(Denied::NoToken)
    }

    /// Whether there is a valid token, if one is required.
    pub(crate) fn admits(&self, place: Option<Place>) -> Result<(), Denied> {
        if self.is_open() { Ok(()) } else { self.bearer(place).map(drop) }
    }

    /// Whether something is permitted for a name.
    pub(crate) fn permits(
        &self,
        place: Option<Place>,
        verb: Verb,
        name: &str,
    ) -> Result<(), Denied> {
        self.permits_some(place, verb, Some(name), |pattern| pattern.fits(name))
    }

    /// Like [`Self::permits`], without the reason.
    pub(crate) fn allows(&self, place: Option<Place>, verb: Verb, name: &str) -> bool {
        let bearer = || self.bearer(place).ok();
        self.is_open() || bearer().is_some_and(|b| b.names(verb).any(|names| names.fits(name)))
    }

    /// Whether something is permitted for any name with this prefix.
    pub(crate) fn permits_within(
        &self,
        place: Option<Place>,
        verb: Verb,
        prefix: &str,
    ) -> Result<(), Denied> {
        let name = Some(prefix).filter(|prefix| !prefix.is_empty());
        self.permits_some(place, verb, name, |pattern| pattern.meets(prefix))
    }

    /// Whether any name that a pattern matches may be read.
    pub(crate) fn permits_watch(
        &self,
        place: Option<Place>,
        pattern: &NamePattern,
    ) -> Result<(), Denied> {
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
    ) -> Result<(), Denied> {
        if self.is_open() {
            return Ok(());
        }
        let bearer = self.bearer(place)?;
        if bearer.names(verb).any(suits) {
            return Ok(());
        }
        let (name, bearer) = (name.map(str::to_owned), bearer.name.clone());
        Err(Denied::NotPermitted { bearer, verb, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(token: &str) -> TokenHash {
        TokenHash::new(Sha256::digest(token).into())
    }

    fn entry(token: &str, names: &[&str], may: &[Verb]) -> Access {
        let names = names.iter().map(|name| name.parse().expect("a pattern"));
        Access::new(hash(token), names, may.iter().copied())
    }

    fn rules() -> Rules {
        let mut ci = entry("ci", &["jobs/*", "deploy"], &[Verb::Acquire]);
        ci.name = Some("ci".to_owned());
        Rules::new(&[ci, entry("ci", &["*"], &[Verb::Read]), entry("ops", &["*"], &[Verb::Admin])])
    }

    fn place(rules: &Rules, token: &str) -> Option<Place> {
        rules.place(rules.recognise(token.as_bytes()).expect("known"))
    }

    #[test]
    fn without_rules_every_client_may_do_everything() {
        let rules = Rules::new(&[]);
        assert!(rules.is_open() && rules.admits(None).is_ok());
        assert_eq!(rules.permits(None, Verb::Acquire, "x"), Ok(()));
        assert_eq!(rules.recognise(b"ci"), Err(Denied::UnknownToken));
    }

    #[test]
    fn a_token_permits_what_any_of_its_entries_permits() {
        let rules = rules();
        let ci = place(&rules, "ci");
        for name in ["jobs/nightly", "deploy"] {
            assert_eq!(rules.permits(ci, Verb::Acquire, name), Ok(()));
        }
        assert_eq!(rules.permits(ci, Verb::Read, "other"), Ok(()));
        assert!(rules.permits(ci, Verb::Admin, "jobs/x").is_err(), "no verb includes another");
        let ops = place(&rules, "ops");
        assert_eq!(rules.permits_within(ops, Verb::Admin, ""), Ok(()));
        assert!(rules.permits(ops, Verb::Read, "x").is_err());
        let denied = rules.permits(ci, Verb::Acquire, "jobs").expect_err("no pattern fits");
        assert_eq!(
            denied.to_string(),
            "the token of \"ci\" may not acquire \"jobs\"; that takes an entry of [[access]] with \
             \"acquire\" in may and a fitting pattern in names"
        );
    }

    #[test]
    fn a_prefix_is_permitted_if_some_of_its_names_are() {
        let rules = rules();
        let ci = place(&rules, "ci");
        for prefix in ["", "jo", "jobs/", "jobs/a", "deploy"] {
            assert_eq!(rules.permits_within(ci, Verb::Acquire, prefix), Ok(()), "{prefix}");
        }
        assert!(rules.permits_within(ci, Verb::Acquire, "other").is_err());
    }

    #[test]
    fn without_a_known_token_nothing_is_permitted() {
        let rules = rules();
        assert_eq!(rules.permits(None, Verb::Read, "x"), Err(Denied::NoToken));
        assert_eq!(rules.admits(None), Err(Denied::NoToken));
        for token in ["", "c", "ci ", "CI"] {
            assert_eq!(rules.recognise(token.as_bytes()), Err(Denied::UnknownToken));
        }
        // The hash is not a token.
        assert_eq!(rules.recognise(hash("ci").as_bytes()), Err(Denied::UnknownToken));
    }

    #[test]
    fn a_token_that_was_removed_has_no_place_any_more() {
        let gate = Gate::new(&[entry("a", &["*"], &[Verb::Read])]);
        let rules = gate.rules();
        let known = rules.borrow().recognise(b"a").expect("known");
        gate.change(&[entry("b", &["*"], &[Verb::Read])]);
        assert_eq!(rules.borrow().place(known), None);
    }
}
