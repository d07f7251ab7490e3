//! How a shard goes from one epoch to the next, and the second step of rounds in a joint epoch
//! (docs/membership.md: C1, C2, E1 to E3, J1 to J3).
//!
//! In a joint epoch the old set confirms a round, and then the new set stores it: a Heal of this
//! very round goes to every member of the new set. So each lease moves by its own next renewal.

use alloc::vec::Vec;

use crate::outbox::{Body, Outbox};
use crate::protocol::acceptor::Acceptor;
use crate::protocol::proposer::{Env, InFlight, Owner, Proposer};
use crate::protocol::register::Answer;
use crate::protocol::round::{Phase, Step};
use crate::rules::Rule;
use crate::storage::Slot;
use crate::{Ballot, Cell, Config, Instant, MemberSet, Record, Refusal, Reply, Request, Shard};

impl Shard {
    /// C1: whether the messages of a frame from this epoch may be handled.
    ///
    /// # Errors
    /// When the sender is in another epoch; then its messages must be dropped.
    #[inline]
    pub fn admit_epoch(&mut self, epoch: u32) -> Result<(), Refusal> {
        if epoch == self.config.cell.epoch() || !self.config.rules.on(Rule::MessagesOfOwnEpochOnly)
        {
            return Ok(());
        }
        self.drops[Refusal::WrongEpoch as usize] += 1;
        Err(Refusal::WrongEpoch)
    }

    /// C2: changes over to a decided configuration with a higher epoch, whether or not it lists
    /// this node. The configuration is on disk already, with a `ballot_ceiling` of at least
    /// [`Record::above`] its floor (W2). An epoch that is not higher changes nothing. If the
    /// configuration lists the id of this node, it lists its birth: [`crate::Decider`] adopts no
    /// other.
    pub fn adopt(&mut self, now: Instant, cell: Cell, floor: Ballot) {
        let before = self.config.cell;
        if cell.epoch() <= before.epoch() {
            return;
        }
        self.config.cell = cell.with_rules(self.config.rules);
        self.config.knows_members = true;
        self.own = cell.member(self.config.node);
        // What was sent, or waited for the disk, belongs to the epoch before.
        self.deferred.clear();
        self.out.drop_transmits();
        let floor =
            if self.config.rules.on(Rule::AdoptionRaisesFloor) { floor } else { Ballot::ZERO };
        self.proposer.observe(floor.counter());
        self.proposer.hold_in_next_epoch(self.own.is_some());
        self.ceilings.raised(Record::above(floor));
        if self.own.is_some() && self.acceptor.is_none() {
            // C8: it has not voted since its start, so it has forgotten nothing since then.
            let (started_floor, quarantine_until) = self.started;
            let acceptor = Acceptor::new(&self.config, started_floor, quarantine_until, false);
            self.acceptor = Some(acceptor);
        }
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.raise_floor(floor);
            acceptor.adopt(&self.config, &mut self.out, now, &before);
        }
        self.with_proposer(now, |proposer, env| proposer.adopt(env, now, &before));
    }

    /// C9, E3: a node that is no member answers nothing. In a joint epoch only members of the old
    /// set answer the first step of a round.
    #[inline]
    pub(crate) fn answers(&self, request: &Request<'_>) -> bool {
        let Some(own) = self.own else { return false };
        !self.config.cell.is_joint()
            || self.config.cell.old_set().contains(own)
            || matches!(request, Request::Heal { .. } | Request::Release { .. })
    }

    /// J1: in a joint epoch, answers to the first step count only if they are of the old set.
    #[cold]
    pub(crate) fn counts_in_joint_epoch(&self, member: MemberSet, reply: &Reply<'_>) -> bool {
        match *reply {
            Reply::Healed { .. } | Reply::NotHealed { .. } | Reply::Released { .. } => true,
            Reply::Promise { .. }
            | Reply::Accept { .. }
            | Reply::Reject { .. }
            | Reply::NotHeld { .. }
            | Reply::Inspected { .. } => self.config.cell.old_set().contains(member),
        }
    }
}

/// The records that an adoption ends (E2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voids {
    Nothing,
    Undated,
    Everything,
}

impl Voids {
    fn of(config: &Config, before: &Cell) -> Self {
        let (after, rules) = (&config.cell, config.rules);
        if !rules.on(Rule::AdoptionKeepsRecords) {
            return Self::Everything;
        }
        // C9: a removed node votes no more, and no reader takes its records for leases.
        let Some(own) = after.member(config.node) else { return Self::Everything };
        let is_newcomer = !after.old_set().contains(own);
        if is_newcomer && rules.on(Rule::NewcomerForgetsRecords) {
            return Self::Everything;
        }
        if is_newcomer || !rules.on(Rule::RecordsOfTheEraCount) {
            return Self::Nothing;
        }
        match after.era().cmp(&before.epoch()) {
            // This node was not in the joint epoch that began the era.
            core::cmp::Ordering::Greater => Self::Everything,
            core::cmp::Ordering::Equal if before.is_joint() => Self::Undated,
            core::cmp::Ordering::Equal | core::cmp::Ordering::Less => Self::Nothing,
        }
    }
}

impl Acceptor {
    /// C2, E2: ends the records that do not count in the new epoch. Promises stay. A joint epoch
    /// begins without dated records.
    fn adopt(&mut self, config: &Config, out: &mut Outbox, now: Instant, before: &Cell) {
        let voids = Voids::of(config, before);
        if voids != Voids::Nothing {
            let slots = (0..self.table().slot_count()).map(Slot::new);
            let is_void = |slot: &Slot| {
                self.table().get(*slot).is_some_and(|entry| entry.register.accepted.is_some())
                    && (voids == Voids::Everything || !self.table().is_dated(*slot))
            };
            let void: Vec<Slot> = slots.filter(is_void).collect();
            for slot in void {
                self.table.entry_mut(slot).register.accepted = None;
            }
        }
        if config.cell.is_joint() {
            self.table.undate();
        }
        // K13: a majority of the members has the registers without those of a node that was away.
        self.registers.forget_answers();
        let own = config.cell.member(config.node);
        let is_newcomer = own.is_none_or(|own| !config.cell.old_set().contains(own));
        if is_newcomer || voids == Voids::Everything {
            self.registers.clear(config, now, out);
        }
        self.registers.check_all(config, now, true);
    }

    /// E1: a Propose or Heal that was accepted dates the record. Only in a joint epoch is that
    /// needed: the era that follows counts from there.
    pub(crate) fn date(&mut self, config: &Config, slot: Slot, heals: bool, answer: Answer) {
        let dates = !heals || config.rules.on(Rule::HealDatesRecord);
        if config.cell.is_joint() && answer == Answer::Accept && dates {
            self.table.date(slot);
        }
    }
}

impl Proposer {
    /// J1, step 2: heals the new set with the lease that the old set confirmed.
    #[cold]
    pub(crate) fn store(&mut self, env: &mut Env<'_>, ballot: Ballot, members: MemberSet) {
        let Some(InFlight { round, owner }) = self.rounds.get(&ballot) else { return };
        let (tenure, ttl) = (round.tenure, round.ttl);
        let label = match owner {
            Owner::Renewal(renewal) => renewal.label.clone(),
            Owner::Contender(id) => match self.contenders.get(*id) {
                Some(contender) => contender.first.label.clone(),
                None => return,
            },
        };
        if members.is_empty() || self.is_released(tenure) {
            return;
        }
        if !env.rules().on(Rule::NewSetIsHealed) && tenure.ballot() != ballot {
            return env.send(members, Body::Renew { label, tenure, ballot, ttl });
        }
        self.send_heal(env, members, Body::Heal { label, tenure, ballot, ttl });
    }

    /// J2: a member of the new set refused. A renewal begins again at once if a higher ballot may
    /// help, and later if not.
    #[cold]
    pub(crate) fn on_not_healed(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        ballot: Ballot,
        promised: Ballot,
    ) {
        let Some(flight) = self.rounds.get_mut(&ballot) else { return };
        let step = flight.round.on_not_stored(&env.config.cell, member);
        if matches!(flight.owner, Owner::Renewal(_)) && step == Step::Lost && promised > ballot {
            return self.renew_again(env, now, ballot);
        }
        self.step(env, now, ballot, step, None);
    }

    /// J2, J3: a renewal begins again with a fresh ballot, unless it has won.
    #[cold]
    pub(crate) fn renew_again(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, .. }) = self.rounds.get(&ballot) else { return };
        let is_answered = round.phase == Phase::Renewed;
        if !is_answered && self.is_released(round.tenure) {
            return self.not_held(env, ballot);
        }
        if let Some((round, renewal)) = self.forget_renewal(ballot)
            && !is_answered
        {
            self.renew(env, now, renewal, round.tenure, round.ttl);
        }
    }

    /// What J1 forbids, for its mutants: the new set is asked before the old one has confirmed.
    #[cold]
    pub(crate) fn store_early(&mut self, env: &mut Env<'_>, ballot: Ballot) {
        let rules = env.rules();
        let new_set = env.cell().new_set();
        if new_set.is_empty() || rules.on(Rule::OldConfirmsFirst) && rules.on(Rule::OldSetConfirms)
        {
            return;
        }
        if let Some(InFlight { round, .. }) = self.rounds.get_mut(&ballot)
            && !rules.on(Rule::OldSetConfirms)
        {
            round.phase = Phase::Storing;
        }
        self.store(env, ballot, new_set);
    }

    /// J3: no answer of the epoch before counts. Fresh rounds are void, are released in the new
    /// epoch, and begin again in the same place of their queue. Renewals begin again with a fresh
    /// ballot; releases and inspections are sent again, and changes of registers begin again.
    /// Waiters ask again, as after a
    /// reconnection.
    pub(crate) fn adopt(&mut self, env: &mut Env<'_>, now: Instant, before: &Cell) {
        let cell = env.config.cell;
        let since = self.silent_since;
        let silent = self.silent;
        self.silent = before.moved(silent, &cell);
        for (place, node) in before.members().iter().enumerate() {
            if let Some(to) = cell.members().iter().position(|member| member == node) {
                self.silent_since[to] = since[place];
            }
        }
        for members in self.healed.values_mut() {
            *members = before.moved(*members, &cell);
        }
        if env.rules().on(Rule::RoundEndsWithItsEpoch) {
            self.begin_again(env, now);
        } else {
            self.go_on(env, now, before);
        }
        self.release_again(env, before);
        self.inspect_again(env);
        self.change_again(env, now);
        self.retry_waiters(env, now);
    }

    /// What J3 forbids, for its mutant: answers of the epoch before count in the new one.
    fn go_on(&mut self, env: &mut Env<'_>, now: Instant, before: &Cell) {
        let cell = env.config.cell;
        let mut ballots: Vec<Ballot> = self.rounds.keys().copied().collect();
        ballots.sort_unstable();
        for ballot in ballots {
            let Some(InFlight { round, .. }) = self.rounds.get_mut(&ballot) else { continue };
            for set in [&mut round.open, &mut round.accepted, &mut round.refused] {
                *set = before.moved(*set, &cell);
            }
            let step = round.on_accept(&cell, now, MemberSet::EMPTY);
            self.step(env, now, ballot, step, None);
        }
    }

    fn begin_again(&mut self, env: &mut Env<'_>, now: Instant) {
        let mut ballots: Vec<Ballot> = self.rounds.keys().copied().collect();
        ballots.sort_unstable();
        for ballot in ballots {
            match self.rounds.get(&ballot).map(|flight| &flight.owner) {
                Some(Owner::Contender(id)) => {
                    let id = *id;
                    self.void_everywhere(env, now, ballot);
                    self.race(env, now, id);
                }
                Some(Owner::Renewal(_)) => self.renew_again(env, now, ballot),
                None => {}
            }
        }
    }
}
