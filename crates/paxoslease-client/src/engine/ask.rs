//! One question on its way, and how it fails.

use std::task::Waker;

use paxoslease_core::Instant;
use paxoslease_holder::transport::{GuardId, ReleaseOutcome};
use paxoslease_holder::{AskError, LeaseInfo, RenewError};

use super::Engine;
use super::speech::{
    put_acquire, put_cancel, put_get, put_list, put_ping, put_release, put_renew, put_status,
};
use super::wishes::Wished;
use crate::command::{Release, ReleaseReply, Renew, Reply};
use crate::list::{Page, PageStart};
use crate::status::NodeStatus;

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
    /// A renewal for a guard.
    RenewGuard(GuardId),
    Renew(Renew),
    Release(Release),
    Get {
        name: Box<str>,
        reply: Reply<Option<LeaseInfo>>,
    },
    List {
        from: PageStart,
        prefix: Box<str>,
        count: u32,
        reply: Reply<Page>,
    },
    Status {
        reply: Reply<NodeStatus>,
    },
    Ping,
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Acquire(_) => "Acquire",
            Self::Holder(_) => "Holder",
            Self::Cancel(_) => "Cancel",
            Self::RenewGuard(_) => "RenewGuard",
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
            Self::Release(release) => return release.over(ReleaseOutcome::Unconfirmed(error)),
            Self::Get { reply, .. } => reply.send(Err(error)).is_err(),
            Self::List { reply, .. } => reply.send(Err(error)).is_err(),
            Self::Status { reply } => reply.send(Err(error)).is_err(),
            Self::Acquire(_) | Self::Cancel(_) | Self::RenewGuard(_) | Self::Ping => return,
        };
    }
}

impl Release {
    /// The release is over. A caller that has left need not hear it.
    pub(super) fn over(self, outcome: ReleaseOutcome) {
        let Self { label, tenure, reply } = self;
        match reply {
            ReleaseReply::Nobody => {}
            ReleaseReply::Guard(caller) => {
                caller.released(outcome).into_iter().for_each(Waker::wake);
            }
            ReleaseReply::Caller(reply) => {
                let _left = reply.send(outcome.into_result(label.name(), tenure.fence()));
            }
        }
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
            Question::RenewGuard(id) => {
                let patience = self.pace.patience(self.endpoints.len());
                let Some(guard) = self.guards.renewing(*id, now, patience) else { return false };
                put_renew(out, guard.label.name().as_bytes(), id.tenure, guard.ttl);
            }
            Question::Renew(Renew { label, tenure, ttl, .. }) => {
                put_renew(out, label.name().as_bytes(), *tenure, *ttl);
            }
            Question::Release(Release { label, tenure, .. }) => {
                put_release(out, label.name().as_bytes(), *tenure);
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
