//! What a session may do, by its token and by the current rules.
//!
//! A session keeps the hash of its token and the token's place in the rules, so that the check of a
//! command allocates nothing. Without rules, nothing is checked.

use std::sync::Arc;

use crate::config::{NamePattern, TokenHash, Verb};
use paxoslease_node::front::Filter;
use paxoslease_wire::resp::put_error;

use super::command::{Command, Requirement};
use super::redis::put_timeout_message;
use super::reply::put_timeout;
use super::reply_error::ReplyError;
use super::session::Session;
use super::{Common, Turn};
use crate::access::{Denied, Place, Rules};

/// Unknown tokens on one connection; the last of them ends it. A valid token in between does not
/// reset the count, or a client with one could guess other tokens for ever.
const UNKNOWN_MAX: u32 = 4;

/// How a client has authenticated.
#[derive(Default)]
pub(super) struct AuthState {
    bearer: Option<TokenHash>,
    place: Option<Place>,
    unknown: u32,
}

impl Session {
    pub(super) const fn place(&self) -> Option<Place> {
        self.auth.place
    }

    /// Whether it has no valid token where one is required.
    pub(super) fn is_unauthenticated(&self, common: &Common) -> bool {
        self.auth.place.is_none() && !common.rules.is_open()
    }

    /// Whether a command may be carried out, where tokens are required.
    pub(super) fn admit<'a>(
        &self,
        turn: &mut Turn<'_, '_>,
        command: Command,
        args: &[&'a [u8]],
    ) -> Result<(), ReplyError<'a>> {
        let (rules, place) = (&turn.common.rules, self.auth.place);
        let name = || args.first().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let admitted = match command.requires(args) {
            Requirement::Nothing => Ok(()),
            Requirement::Token => rules.admits(place),
            Requirement::Cell => rules.permits_cell(place),
            Requirement::Status => rules.status_verb(place).map(drop),
            Requirement::Name(verb) => match name() {
                Some(name) => rules.permits(place, verb, name),
                // The reply will say that this is not a name.
                None => rules.admits(place),
            },
        };
        admitted.map_err(|denied| self.deny(turn, denied))
    }

    /// Whether a key of an operation may be read, or acquired and changed.
    pub(super) fn admit_key(
        &self,
        turn: &mut Turn<'_, '_>,
        verb: Verb,
        name: &str,
    ) -> Result<(), ReplyError<'static>> {
        if turn.common.rules.is_open() {
            return Ok(());
        }
        let admitted = turn.common.rules.permits(self.auth.place, verb, name);
        admitted.map_err(|denied| self.deny(turn, denied))
    }

    /// Whether the cell as a whole may be administrated.
    pub(super) fn admit_cell(&self, turn: &mut Turn<'_, '_>) -> Result<(), ReplyError<'static>> {
        let admitted = turn.common.rules.permits_cell(self.auth.place);
        admitted.map_err(|denied| self.deny(turn, denied))
    }

    /// Whether the token permits one of these verbs for any name at all.
    pub(super) fn admit_some(
        &self,
        turn: &mut Turn<'_, '_>,
        verbs: &[Verb],
    ) -> Result<(), ReplyError<'static>> {
        let mut denied = None;
        for verb in verbs {
            match turn.common.rules.permits_within(self.auth.place, *verb, "") {
                Ok(()) => return Ok(()),
                Err(error) => _ = denied.get_or_insert(error),
            }
        }
        denied.map_or(Ok(()), |denied| Err(self.deny(turn, denied)))
    }

    /// Whether any name that a pattern matches may be read.
    pub(super) fn admit_read(
        &self,
        turn: &mut Turn<'_, '_>,
        pattern: &NamePattern,
    ) -> Result<(), ReplyError<'static>> {
        let admitted = turn.common.rules.permits_watch(self.auth.place, pattern);
        admitted.map_err(|denied| self.deny(turn, denied))
    }

    /// The names that the client may read now.
    pub(super) fn readable(&self, common: &Common) -> Filter {
        if common.rules.is_open() {
            return Filter::ALL;
        }
        let (rules, place) = (Arc::clone(&common.rules), self.auth.place);
        Filter::new(move |name| rules.allows(place, Verb::Read, name))
    }

    /// Takes the token that counts for this session from now on.
    pub(super) fn authenticate(
        &mut self,
        turn: &mut Turn<'_, '_>,
        token: &[u8],
    ) -> Result<(), ReplyError<'static>> {
        if turn.common.rules.is_open() {
            return Err(ReplyError::NoPassword);
        }
        match turn.common.rules.recognise(token) {
            Ok(bearer) => {
                let place = turn.common.rules.place(bearer);
                (self.auth.bearer, self.auth.place) = (Some(bearer), place);
                turn.common.unauthenticated.forget(self.conn.index());
                Ok(())
            }
            Err(denied) => {
                if let Some(count) = turn.common.notices.again(turn.shard.now()) {
                    let client = &self.address;
                    tracing::warn!(client, count, "clients sent unknown tokens");
                }
                self.auth.unknown += 1;
                if self.auth.unknown >= UNKNOWN_MAX {
                    self.hang_up(turn);
                }
                Err(self.deny(turn, denied))
            }
        }
    }

    fn deny(&self, turn: &mut Turn<'_, '_>, denied: Denied) -> ReplyError<'static> {
        let Turn { common, shard } = turn;
        common.tally.refused(shard.now(), denied.reason());
        common.audit.refused(&denied, &self.address, shard.now());
        match denied {
            Denied::NoToken | Denied::UnknownToken => ReplyError::NoAuth(denied),
            Denied::NotPermitted { .. } => ReplyError::NoPerm(denied),
        }
    }

    /// Drops the token.
    pub(super) fn forget_token(&mut self, turn: &mut Turn<'_, '_>) {
        self.auth = AuthState { unknown: self.auth.unknown, ..AuthState::default() };
        if !turn.common.rules.is_open() {
            turn.common.unauthenticated.begin(self.conn.index(), turn.shard.now());
        }
    }

    /// The rules have changed. Withdraws acquires that are no longer permitted. Closes the
    /// connection if a watch is no longer permitted, because silence would look like no changes.
    pub(super) fn recheck(&mut self, turn: &mut Turn<'_, '_>) {
        let rules = Arc::clone(&turn.common.rules);
        let place = self.auth.bearer.and_then(|bearer| rules.place(bearer));
        self.auth.place = place;
        match place {
            None if !rules.is_open() => {
                turn.common.unauthenticated.begin(self.conn.index(), turn.shard.now());
            }
            _ => turn.common.unauthenticated.forget(self.conn.index()),
        }
        let by_channels = self.lease_channels.iter().map(|known| &known.pattern);
        let mut watches = self.patterns.iter().chain(by_channels);
        let blinded = watches.find_map(|pattern| rules.permits_watch(place, pattern).err());
        let is_blinded = blinded.is_some();
        let lacks = |name: &str| is_blinded || !rules.allows(place, Verb::Acquire, name);
        let by_channel = self.is_notified_by_channel();
        for id in self.withdraw_notifies(turn, |ask| ask.is_for(lacks)) {
            let out = &mut self.output.bytes;
            if by_channel {
                put_timeout_message(&id, out);
            } else {
                put_timeout(&id, self.protocol, out);
            }
        }
        let error = blinded.map_or(ReplyError::Withdrawn, ReplyError::Blinded);
        turn.common.scratch.clear();
        put_error(&mut turn.common.scratch, &error);
        self.withdraw_replies(turn, |ask| ask.is_for(lacks));
        self.withdraw_operations(turn, |operations, id| {
            let name = operations.waits_for(id);
            name.is_some_and(|name| !rules.allows(place, Verb::Read, name))
        });
        self.settled(turn, 0);
        if is_blinded {
            self.reply_error(turn.common, &error);
            self.hang_up(turn);
        }
    }
}

impl Common {
    /// Takes over new rules. Returns whether there were any.
    pub(super) fn follow_rules(&mut self) -> bool {
        // A gate that was dropped will not change.
        let is_new = self.gate.has_changed().unwrap_or(false);
        if is_new {
            self.rules = Arc::<Rules>::clone(&self.gate.borrow_and_update());
        }
        is_new
    }
}
