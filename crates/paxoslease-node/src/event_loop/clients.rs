//! The front-end of one shard's thread, and what goes to and fro between it, its shard, the other
//! shards, and threads elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mio::net::TcpStream;
use paxoslease_core::Instant;

use super::{Conns, Listener, Post};
use crate::driver::{ConnId, Driver};
use crate::front::{FrontEnd, Outgoing, ShardHandle, Waiting};
use crate::request::{Answer, Hint, ReplyTo};

pub(crate) struct Clients {
    /// None in a node that is embedded.
    front: Option<Box<dyn FrontEnd>>,
    /// Where clients connect, in the first shard.
    pub(super) listener: Option<Listener>,
    outgoing: Outgoing,
    /// Those elsewhere who wait for answers of this node.
    waiting: Arc<Waiting>,
    /// Lends its memory to answers on their way.
    answers: Vec<(ReplyTo, Answer)>,
    own: u16,
    /// The shard that gets the next client.
    turn: usize,
    left: bool,
    done: bool,
    /// Front-ends of this node that have still something to tell somebody.
    undone: Arc<AtomicUsize>,
}

/// Runs something of the front-end's, if there is one.
macro_rules! front {
    (
        $clients:expr, $driver:expr, $conns:expr, $now:expr,
        |$front:ident, $desk:ident| $run:expr
    ) => {
        if let Some($front) = &mut $clients.front {
            let outgoing = &mut $clients.outgoing;
            let $desk = &mut ShardHandle { now: $now, driver: $driver, conns: $conns, outgoing };
            Some($run)
        } else {
            None
        }
    };
}

impl Clients {
    pub(crate) fn new(
        front: Option<Box<dyn FrontEnd>>,
        listener: Option<Listener>,
        waiting: Arc<Waiting>,
        (own, shards): (u16, usize),
        undone: Arc<AtomicUsize>,
    ) -> Self {
        // Where there is none, there is nothing to tell.
        undone.fetch_add(usize::from(front.is_some()), Ordering::AcqRel);
        Self {
            front,
            listener,
            outgoing: Outgoing::new(shards),
            waiting,
            answers: Vec::new(),
            own,
            turn: 0,
            left: false,
            done: false,
            undone,
        }
    }

    /// Whether there is more to do without waiting.
    pub(super) fn unfinished(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::unfinished)
    }

    /// Accepts clients for all shards in turn, so that a few of them are spread evenly.
    pub(super) fn accept(&mut self, conns: &mut Conns) {
        let Some(listener) = &mut self.listener else { return };
        let (own, turn) = (usize::from(self.own), &mut self.turn);
        listener.accept(|stream: TcpStream| {
            let shard = *turn % conns.mailboxes.len();
            *turn += 1;
            if shard == own {
                conns.accepted_client(stream);
            } else {
                // A shard that left needs no clients.
                let _left = conns.mailboxes[shard].post(Post::Client(stream));
            }
        });
    }

    pub(super) fn accepted(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.accepted(desk, conn));
    }

    pub(super) fn received(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        (conn, bytes): (ConnId, &[u8]),
    ) -> usize {
        front!(self, driver, conns, now, |front, desk| front.received(desk, conn, bytes))
            .unwrap_or(bytes.len())
    }

    pub(super) fn writable(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.writable(desk, conn));
    }

    pub(super) fn ending(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.ending(desk, conn));
    }

    pub(super) fn out_of_sight(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.out_of_sight(desk, conn));
    }

    pub(super) fn ended(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.ended(desk, conn));
    }

    pub(super) fn closed(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        conn: ConnId,
    ) {
        front!(self, driver, conns, now, |front, desk| front.closed(desk, conn));
    }

    pub(super) fn answered(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        id: u64,
        answer: Answer,
    ) {
        front!(self, driver, conns, now, |front, desk| front.answered(desk, id, answer));
    }

    pub(super) fn hinted(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        hints: &[Hint],
    ) {
        for hint in hints {
            front!(self, driver, conns, now, |front, desk| front.hinted(desk, hint));
        }
    }

    /// Does whatever it is time for; once, it says good-bye.
    pub(super) fn tick(&mut self, driver: &mut Driver, conns: &mut Conns, now: Instant) {
        if driver.is_leaving() && !std::mem::replace(&mut self.left, true) {
            self.listener = None;
            front!(self, driver, conns, now, |front, desk| front.leave(desk));
        }
        front!(self, driver, conns, now, |front, desk| front.tick(desk));
    }

    /// Hands out answers, until nothing new was asked.
    pub(super) fn settle(&mut self, driver: &mut Driver, conns: &mut Conns, now: Instant) {
        loop {
            driver.act(now);
            let mut answers = std::mem::take(&mut self.answers);
            driver.take_answers(&mut answers);
            if answers.is_empty() {
                self.answers = answers;
                break;
            }
            for (from, answer) in answers.drain(..) {
                self.route(driver, conns, now, from, answer);
            }
            self.answers = answers;
        }
        self.pass_hints_on(driver, conns, now);
    }

    fn route(
        &mut self,
        driver: &mut Driver,
        conns: &mut Conns,
        now: Instant,
        from: ReplyTo,
        answer: Answer,
    ) {
        if from.origin == self.own {
            self.answered(driver, conns, now, from.id, answer);
        } else if from.origin == ReplyTo::REMOTE {
            if let Some((label, tenure)) = self.waiting.answer(from.id, answer) {
                driver.give_back(now, label.name(), tenure);
            }
        } else if let Some(answers) = self.outgoing.answers.get_mut(usize::from(from.origin)) {
            answers.push((from.id, answer));
        }
    }

    fn pass_hints_on(&mut self, driver: &mut Driver, conns: &mut Conns, now: Instant) {
        let (origins, hints) = driver.take_hints();
        if hints.is_empty() {
            return;
        }
        for origin in origins {
            if origin == self.own {
                self.hinted(driver, conns, now, &hints);
            } else if let Some(theirs) = self.outgoing.hints.get_mut(usize::from(origin)) {
                theirs.extend(hints.iter().cloned());
            }
        }
    }

    /// Everything of this turn was told: sends, and posts what is for other shards.
    pub(super) fn flush(&mut self, driver: &mut Driver, conns: &mut Conns, now: Instant) {
        front!(self, driver, conns, now, |front, desk| front.flush(desk));
        let Self { outgoing, own, .. } = self;
        let watch = outgoing.watch.take();
        for (shard, mailbox) in conns.mailboxes.iter().enumerate() {
            if shard == usize::from(*own) {
                continue;
            }
            if let Some(on) = watch {
                let _left = mailbox.post(Post::Watch { origin: *own, on });
            }
            let requests = std::mem::take(&mut outgoing.requests[shard]);
            if !requests.is_empty()
                && let Err(Post::Requests(requests)) = mailbox.post(Post::Requests(requests))
            {
                // That shard has left. This one leaves too, and waits for no answer for longer than
                // its own patience. See `are_done`.
                for (from, _) in requests.iter().filter(|(_, request)| request.wants_answer()) {
                    driver.refuse(*from, Answer::Stopping);
                }
            }
            let answers = std::mem::take(&mut outgoing.answers[shard]);
            if !answers.is_empty() {
                let _left = mailbox.post(Post::Answers(answers));
            }
            let hints = std::mem::take(&mut outgoing.hints[shard]);
            if !hints.is_empty() {
                let _left = mailbox.post(Post::Hints(hints));
            }
        }
    }

    pub(super) fn next_at(&self) -> Instant {
        self.front.as_ref().and_then(|front| front.next_at()).unwrap_or(Instant::MAX)
    }

    /// Whether the front-ends of all shards have told everybody, after the node was told to leave.
    ///
    /// Shards go together: one that went before the others would leave acquires of their clients
    /// unanswered, and grants that nobody heard of, which they would have it take back (P8), to
    /// their ttl. Whoever stays longer than the node's patience with its last releases is left all
    /// the same, and that is harmless: its clients were told at once that the node stops, what it
    /// still waits for ends with its own patience, and a grant it did not hear of with its ttl.
    pub(super) fn are_done(&mut self, conns: &Conns) -> bool {
        let Some(front) = &self.front else { return true };
        if !self.left {
            return false;
        }
        if !self.done && front.is_done() {
            self.done = true;
            if self.undone.fetch_sub(1, Ordering::AcqRel) == 1 {
                for mailbox in &conns.mailboxes {
                    // One that lost its patience is gone.
                    let _left = mailbox.post(Post::Done);
                }
            }
        }
        self.undone.load(Ordering::Acquire) == 0
    }
}
