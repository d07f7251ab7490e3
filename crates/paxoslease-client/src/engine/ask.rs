//! One question on its way, and how it fails.

use paxoslease_core::{Instant, Tenure};

use super::Engine;
use super::speech::{
    put_acquire, put_cancel, put_get, put_list, put_ping, put_release, put_renew, put_status,
};
use super::wishes::Wished;
use crate::command::{Release, Renew, Reply};
use crate::error::{AskError, ReleaseError, RenewError};
use crate::list::{Page, PageStart};
use crate::status::Status;
use crate::watch::Sighting;

#[derive(Debug)]
pub(super) struct Ask {
    pub(super) question: Question,
    pub(super) give_up_at: Instant,
    /// Whether some node was asked before, and may have done it.
    pub(super) was_sent: bool,
    /// How many nodes said that they cannot.
    pub(super) refused: usize,
    /// What the last of them said; wishes remember that themselves.
    pub(super) refusal: Option<AskError>,
}

pub(super) enum Question {
    /// The wish of this number.
    Acquire(u64),
    /// Who holds what this wish did not get.
    Holder(Box<Wished>),
    /// The wait that a node knows by this number is taken back.
    Cancel(u64),
    /// A renewal for the guard in this slot.
    RenewGuard(usize, Tenure),
    Renew(Renew),
    Release(Release),
    Get {
        name: Box<str>,
        reply: Reply<Option<Sighting>>,
    },
    List {
        from: PageStart,
        prefix: Box<str>,
        count: u32,
        reply: Reply<Page>,
    },
    Status {
        reply: Reply<Status>,
    },
    Ping,
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Acquire(_) => "Acquire",
            Self::Holder(_) => "Holder",
            Self::Cancel(_) => "Cancel",
            Self::RenewGuard(..) => "RenewGuard",
            Self::Renew(_) => "Renew",
            Self::Release(_) => "Release",
            Self::Get { .. } => "Get",
            Self::List { .. } => "List",
            Self::Status { .. } => "Status",
            Self::Ping => "Ping",
        })
    }
}

impl Ask {
    pub(super) const fn new(question: Question, give_up_at: Instant) -> Self {
        Self { question, give_up_at, was_sent: false, refused: 0, refusal: None }
    }
}

impl Question {
    /// Whether a node has to ask others before it answers.
    pub(super) const fn needs_majority(&self) -> bool {
        !matches!(self, Self::Cancel(_) | Self::List { .. } | Self::Status { .. } | Self::Ping)
    }

    /// Tells whoever asked; whoever left need not hear it.
    pub(super) fn fail(self, error: AskError) {
        let _left = match self {
            Self::Holder(wished) => return wished.holder_unknown(error),
            Self::Renew(renew) => renew.reply.send(Err(RenewError::Ask(error))).is_err(),
            Self::Release(Release { reply: Some(reply), .. }) => {
                reply.send(Err(ReleaseError::Unconfirmed(error))).is_err()
            }
            Self::Get { reply, .. } => reply.send(Err(error)).is_err(),
            Self::List { reply, .. } => reply.send(Err(error)).is_err(),
            Self::Status { reply } => reply.send(Err(error)).is_err(),
            Self::Acquire(_)
            | Self::Cancel(_)
            | Self::RenewGuard(..)
            | Self::Release(_)
            | Self::Ping => return,
        };
    }
}

impl Engine {
    /// Nobody is left to ask, or no time. A node that answered knows better why than those that
    /// did not.
    pub(super) fn give_up(&mut self, ask: Ask, error: &AskError) {
        self.fail(ask.question, ask.refusal.unwrap_or_else(|| error.clone()));
    }

    /// What a node said that cannot, should no other answer.
    pub(super) fn remember(&mut self, ask: &mut Ask, error: &AskError) {
        match ask.question {
            Question::Acquire(id) => self.wishes.remember(id, error),
            _ => ask.refusal = Some(error.clone()),
        }
    }

    /// As [`Question::fail`], wishes included.
    pub(super) fn fail(&mut self, question: Question, error: AskError) {
        match question {
            Question::Acquire(id) => {
                if let Some(wished) = self.wishes.remove(id) {
                    wished.fail(error.into());
                }
            }
            question => question.fail(error),
        }
    }

    /// Words a question. `false` when nobody wants to know any more.
    pub(super) fn put(&mut self, now: Instant, question: &Question) -> bool {
        let out = &mut self.out;
        match question {
            Question::Acquire(id) => {
                let Some(wished) = self.wishes.send(*id, now) else { return false };
                put_acquire(out, &wished.wish.label, wished.wish.ttl, wished.wait(now));
            }
            Question::Holder(wished) => put_get(out, wished.wish.label.name().as_str()),
            Question::Cancel(id) => put_cancel(out, *id),
            Question::RenewGuard(slot, tenure) => {
                let patience = self.pace.patience(self.endpoints.len());
                let Some(guard) = self.guards.renewing((*slot, *tenure), now, patience) else {
                    return false;
                };
                put_renew(out, guard.label.name().as_bytes(), *tenure, guard.ttl);
            }
            Question::Renew(Renew { name, tenure, ttl, .. }) => {
                put_renew(out, name.as_bytes(), *tenure, *ttl);
            }
            Question::Release(release) => {
                put_release(out, release.name.as_bytes(), release.tenure);
            }
            Question::Get { name, .. } => put_get(out, name),
            Question::List { from, prefix, count, .. } => {
                let session = self.session.as_ref().map_or(0, |session| session.number);
                put_list(out, from.cursor(session), prefix, *count);
            }
            Question::Status { .. } => put_status(out),
            Question::Ping => put_ping(out),
        }
        true
    }
}
