//! What a session may do: by the token it showed, and by the rules of the moment.
//!
//! Where there are no rules, nothing here is asked. Where there are, a session keeps the hash of
//! its token and where the rules have it, so that a command costs a look and no memory.

use std::sync::Arc;

use paxoslease_node::front::{Desk, Filter};
use paxoslease_wire::resp::put_error;

use super::Common;
use super::command::{Command, Takes};
use super::complaint::Complaint;
use super::reply::put_timeout;
use super::session::Session;
use crate::access::{Denied, Place, Rules};
use crate::config::{NamePattern, TokenHash, Verb};

/// Tokens that are not known on one connection; the last of them ends it. A good token in between
/// does not begin a new count, or a client with one could guess those of others for ever.
const UNKNOWN_MAX: u32 = 4;

/// Who a client showed to be.
#[derive(Default)]
pub(super) struct Standing {
    bearer: Option<TokenHash>,
    place: Option<Place>,
    unknown: u32,
}

impl Session {
    pub(super) const fn place(&self) -> Option<Place> {
        self.standing.place
    }

    /// Whether it has no good token where one is asked for.
    pub(super) fn is_stranger(&self, common: &Common) -> bool {
        self.standing.place.is_none() && !common.rules.is_open()
    }

    /// Whether a command may be carried out, where that is asked.
    pub(super) fn admit<'a>(
        &self,
        common: &mut Common,
        desk: &Desk<'_>,
        (command, args): (Command, &[&'a [u8]]),
    ) -> Result<(), Complaint<'a>> {
        let (rules, place) = (&common.rules, self.standing.place);
        let name = || args.first().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let admitted = match command.takes(args) {
            Takes::Nothing => Ok(()),
            Takes::Token => rules.admits(place),
            Takes::Cell => rules.permits_within(place, Verb::Admin, ""),
            Takes::Name(verb) => match name() {
                Some(name) => rules.permits(place, verb, name),
                // It will be told that this is no name.
                None => rules.admits(place),
            },
        };
        admitted.map_err(|denied| deny(common, desk, denied))
    }

    /// Whether there can be anything to see under a prefix.
    pub(super) fn admit_within(
        &self,
        common: &mut Common,
        desk: &Desk<'_>,
        prefix: &str,
    ) -> Result<(), Complaint<'static>> {
        let admitted = common.rules.permits_within(self.standing.place, Verb::Read, prefix);
        admitted.map_err(|denied| deny(common, desk, denied))
    }

    /// Whether there can be anything to watch of a pattern.
    pub(super) fn admit_watch(
        &self,
        common: &mut Common,
        desk: &Desk<'_>,
        pattern: &NamePattern,
    ) -> Result<(), Complaint<'static>> {
        let admitted = common.rules.permits_watch(self.standing.place, pattern);
        admitted.map_err(|denied| deny(common, desk, denied))
    }

    /// The names that may be shown now.
    pub(super) fn readable(&self, common: &Common) -> Filter {
        if common.rules.is_open() {
            return Filter::ALL;
        }
        let (rules, place) = (Arc::clone(&common.rules), self.standing.place);
        Filter::new(move |name| rules.allows(place, Verb::Read, name))
    }

    /// Takes a token, in whose name the client speaks from now on.
    pub(super) fn authenticate(
        &mut self,
        common: &mut Common,
        desk: &mut Desk<'_>,
        token: &[u8],
    ) -> Result<(), Complaint<'static>> {
        if common.rules.is_open() {
            return Err(Complaint::NoPassword);
        }
        match common.rules.recognise(token) {
            Ok(bearer) => {
                let place = common.rules.place(bearer);
                (self.standing.bearer, self.standing.place) = (Some(bearer), place);
                common.strangers.forget(self.conn.index());
                Ok(())
            }
            Err(denied) => {
                if let Some(count) = common.notices.again(desk.now()) {
                    let client = &self.address;
                    tracing::warn!(client, count, "clients sent tokens that are not known");
                }
                self.standing.unknown += 1;
                if self.standing.unknown >= UNKNOWN_MAX {
                    self.hang_up(common, desk);
                }
                Err(deny(common, desk, denied))
            }
        }
    }

    /// Is nobody any more.
    pub(super) fn forget_token(&mut self, common: &mut Common, desk: &Desk<'_>) {
        self.standing = Standing { unknown: self.standing.unknown, ..Standing::default() };
        if !common.rules.is_open() {
            common.strangers.begin(self.conn.index(), desk.now());
        }
    }

    /// There are other rules: what waits and may not any more is taken back, and who watches what
    /// it may not any more is told and hung up on, for silence would look as if nothing happened.
    pub(super) fn recheck(&mut self, common: &mut Common, desk: &mut Desk<'_>) {
        let rules = Arc::clone(&common.rules);
        let place = self.standing.bearer.and_then(|bearer| rules.place(bearer));
        self.standing.place = place;
        match place {
            None if !rules.is_open() => common.strangers.begin(self.conn.index(), desk.now()),
            _ => common.strangers.forget(self.conn.index()),
        }
        let mut watches = self.patterns.iter();
        let blinded = watches.find_map(|pattern| rules.permits_watch(place, pattern).err());
        let is_blinded = blinded.is_some();
        let lacks = |name: &str| is_blinded || !rules.allows(place, Verb::Acquire, name);
        for id in self.take_back_notifies(common, desk, lacks) {
            put_timeout(&id, self.protocol, &mut self.output.bytes);
        }
        let complaint = blinded.map_or(Complaint::Withdrawn, Complaint::Blinded);
        common.scratch.clear();
        put_error(&mut common.scratch, &complaint);
        self.take_back_acquires(common, desk, lacks);
        if is_blinded {
            self.complain(common, &complaint);
            self.hang_up(common, desk);
        }
    }
}

fn deny(common: &mut Common, desk: &Desk<'_>, denied: Denied) -> Complaint<'static> {
    common.tally.refused(desk.now(), denied.reason());
    match denied {
        Denied::NoToken | Denied::UnknownToken => Complaint::NoAuth(denied),
        Denied::NotPermitted { .. } => Complaint::NoPerm(denied),
    }
}

impl Common {
    /// Takes over other rules, if there are any; says whether.
    pub(super) fn follow_rules(&mut self) -> bool {
        // A gate that is gone will not change.
        let is_new = self.gate.has_changed().unwrap_or(false);
        if is_new {
            self.rules = Arc::<Rules>::clone(&self.gate.borrow_and_update());
        }
        is_new
    }
}
