//! Questions of front-ends and of threads elsewhere, for holders that keep their own time: the
//! shard remembers nothing of them, the token in the core says whose the answer is.

use std::time::Duration;

use paxoslease_core::{
    Acquire, CommandError, Event, Holder, Instant, Label, Name, Renew, Tenure, Ttl,
};

use super::Driver;
use super::counters::Outcome;
use crate::front::{Answer, Ask, Hint, Kind, Letter, Routed};
use paxoslease_holder::Status;

impl Driver {
    pub(crate) fn shard_index(&self) -> u16 {
        self.peers.identity.shard.index()
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.peers.identity.shard.count()
    }

    /// The whole node, as seen from here.
    pub(crate) fn node_status(&self, now: Instant) -> Status {
        self.board.status(self.shard_index(), self.status(now))
    }

    /// Puts a question. Answered by [`Self::take_answers`].
    pub(crate) fn ask(&mut self, now: Instant, from: Routed, ask: Ask<'_>) {
        let token = from.token(ask.kind());
        self.messages_since_sweep += 1;
        let refused = match ask {
            Ask::Acquire { .. }
            | Ask::Try { .. }
            | Ask::Renew { .. }
            | Ask::Inspect { .. }
            | Ask::List { .. }
                if self.is_leaving() =>
            {
                return self.answers.push((from, Answer::Stopping));
            }
            Ask::Acquire { name, holder, ttl, wait } => {
                self.begin(now, Acquire { token, name, holder, ttl, wait })
            }
            Ask::Try { name, holder, ttl } => {
                self.begin(now, Acquire { token, name, holder, ttl, wait: Duration::ZERO })
            }
            Ask::Abandon { name } => {
                let mut tokens = [token, from.token(Kind::Try)].into_iter();
                if tokens.any(|token| self.shard.abandon(now, name, token)) {
                    self.counters.acquired(Outcome::Abandoned);
                    self.answers.push((from, Answer::Abandoned));
                }
                None
            }
            Ask::Renew { name, fence, ttl } => match Tenure::from_fence(fence) {
                None => {
                    self.counters.renewed(Outcome::NotHeld);
                    return self.answers.push((from, Answer::NotHeld));
                }
                Some(tenure) => {
                    let renew = Renew { token, name, holder: Holder::NONE, tenure, ttl };
                    let refused = self.shard.renew(now, renew).err();
                    refused.inspect(|_| self.counters.renewed(Outcome::Refused))
                }
            },
            Ask::Release { name, fence } => match Tenure::from_fence(fence) {
                None => {
                    let never = Answer::Released { held: false, confirmed: true };
                    return self.answers.push((from, never));
                }
                Some(tenure) => {
                    self.counters.released();
                    let patience = self.shard.config().request_timeout;
                    self.shard.release(now, token, name, tenure, patience).err()
                }
            },
            Ask::Inspect { name } => self.shard.inspect(now, token, name).err(),
            Ask::List { slot, prefix, filter, max } => {
                if let Err(answer) = self.lists.add(from, slot, (prefix, filter), max) {
                    self.answers.push((from, answer));
                }
                None
            }
        };
        if let Some(error) = refused {
            let answer = match error {
                CommandError::Ttl(error) => Answer::Ttl(error),
                CommandError::TooManyRounds(_) | CommandError::TooManyWaiters(_) => {
                    Answer::Busy(error)
                }
            };
            self.answers.push((from, answer));
        }
    }

    fn begin(&mut self, now: Instant, acquire: Acquire<'_>) -> Option<CommandError> {
        let refused = self.shard.acquire(now, acquire).err();
        refused.inspect(|_| self.counters.acquired(Outcome::Refused))
    }

    /// These names will be asked for next.
    pub(crate) fn foresee<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        self.shard.prefetch(names);
    }

    /// The listing begins at a shard this node does not have.
    pub(crate) fn nothing_to_list(&mut self, from: Routed) {
        self.answers.push((from, Answer::Listed { leases: Vec::new(), next: None }));
    }

    /// Whether the front-end of a shard, maybe another, wants to hear hints.
    pub(crate) fn hint(&mut self, origin: u16, on: bool) {
        self.hinted.retain(|known| *known != origin);
        if on {
            self.hinted.push(origin);
        }
        self.set_watched();
    }

    /// Those who want to hear hints, by shard, and the hints since the last time.
    pub(crate) fn take_hints(&mut self) -> (Vec<u16>, Vec<Hint>) {
        if self.hints.is_empty() {
            return (Vec::new(), Vec::new());
        }
        (self.hinted.clone(), std::mem::take(&mut self.hints))
    }

    /// The shard a letter was for has left: this one will too, and waits for no answer for longer
    /// than its own patience. See `Clients::are_done`.
    pub(crate) fn refuse_letter(&mut self, letter: &Letter) {
        if letter.wants_answer() {
            self.answers.push((letter.from, Answer::Stopping));
        }
    }

    /// The answers since the last time. `into` is empty and lends its memory.
    pub(crate) fn take_answers(&mut self, into: &mut Vec<(Routed, Answer)>) {
        std::mem::swap(&mut self.answers, into);
    }

    /// Gives back a lease that nobody wants.
    pub(crate) fn give_back(&mut self, now: Instant, name: Name<'_>, fence: u64) {
        if let Some(tenure) = Tenure::from_fence(fence) {
            let longest = self.shard.config().cell.max_lease();
            let label = Label::new(name, Holder::NONE);
            self.release_in_background(now, &label, tenure, longest);
        }
    }

    /// An event that answers a question from outside.
    pub(super) fn answer_asked(
        &mut self,
        now: Instant,
        (from, kind): (Routed, Kind),
        event: Event,
    ) {
        let answer = match event {
            Event::Granted { tenure, ttl, started_at, waited, .. } => {
                self.counters.round_took(now.since(started_at));
                self.counters.acquired(Outcome::Granted);
                Answer::Granted { fence: tenure.fence(), ttl: span(ttl), waited }
            }
            Event::Denied { by, .. } => {
                if kind != Kind::Try {
                    self.counters.acquired(Outcome::Held);
                }
                Answer::Held(by)
            }
            Event::NoQuorum { .. } => {
                match kind {
                    Kind::Acquire => self.counters.acquired(Outcome::NoQuorum),
                    Kind::Renew => self.counters.renewed(Outcome::NoQuorum),
                    Kind::Other | Kind::Try => {}
                }
                // A full cell does not answer either, and that is the better thing to be told.
                if matches!(kind, Kind::Acquire | Kind::Try) && self.shard.is_full() {
                    Answer::Full
                } else {
                    Answer::NoQuorum
                }
            }
            Event::Renewed { ttl, started_at, .. } => {
                self.counters.round_took(now.since(started_at));
                self.counters.renewed(Outcome::Granted);
                Answer::Renewed { ttl: span(ttl) }
            }
            Event::NotHeld { .. } => {
                self.counters.renewed(Outcome::NotHeld);
                Answer::NotHeld
            }
            Event::Released { held, confirmed, .. } => Answer::Released { held, confirmed },
            Event::Inspected { accepted, .. } => Answer::Inspected(accepted),
            Event::Persist(_)
            | Event::HeldHint(_)
            | Event::FreedHint(_)
            | Event::ExpiredHint { .. } => return,
        };
        self.answers.push((from, answer));
    }

    pub(super) fn hint_to_fronts(&mut self, hint: impl FnOnce() -> Hint) {
        if !self.hinted.is_empty() {
            self.hints.push(hint());
        }
    }
}

const fn span(ttl: Ttl) -> Duration {
    ttl.as_duration()
}
