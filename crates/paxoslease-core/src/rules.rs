//! The safety rules of the protocol by name, so that a test can switch one off.
//!
//! In a normal build [`Rules`] has no fields and [`Rules::on`] is the constant `true`, so the
//! compiler removes every check. With the feature `mutants`, one rule at a time can be off, and a
//! checker or a scripted schedule must then find the harm (docs/protocol.md, section 8).

use crate::listed::listed;

listed! {
    /// A row of the table "what breaks without each rule" of docs/protocol.md.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Rule {
        /// A3: a live lease of another tenure refuses a Propose.
        ProposeRefusesForeign,
        /// A3: an accepted Propose raises `promised`.
        ProposeRaisesPromised,
        /// A4: a renewal keeps the later of two expiries.
        RenewKeepsLater,
        /// A4: a renewal raises `promised`.
        RenewRaisesPromised,
        /// A4: only a live lease is renewed.
        RenewOnlyLive,
        /// P5: a Heal is sent only after a majority renewed.
        HealOnlyAfterMajority,
        /// A5: a Heal below `promised` is refused.
        HealObeysBallot,
        /// A5: a Heal replaces a live lease only of a lower tenure.
        HealReplacesOnlyLower,
        /// P5: a Heal carries the ballot of the renewal that won.
        HealCarriesRenewalBallot,
        /// A6: a Release clears exactly its own tenure.
        ReleaseMatchesTenure,
        /// A8: after the Release of a tenure that is not stored, a late Propose stores nothing.
        EndedTenureIsNotStored,
        /// A9: an acceptor remembers which Release ended a tenure.
        FirstReleaseIsKept,
        /// A7: reclaiming an entry folds its `promised` into `floor`.
        ReclaimFoldsIntoFloor,
        /// R1: no ballot above the durable ceiling is issued or promised.
        BallotWaitsForDisk,
        /// R1: after a restart, `floor` begins at the ceiling.
        FloorStartsAtCeiling,
        /// R1, R5: after a restart, the counter begins at the ceiling: no ballot is issued twice.
        CounterStartsAtCeiling,
        /// R5: a node without a record issues no ballot before enough members told their counters.
        RecordlessNodeAsksFirst,
        /// R5: an acceptor without a record promises above every counter it heard before it votes.
        RecordlessFloorIsLearnt,
        /// P1: a late majority counts for nothing.
        LateMajorityCountsForNothing,
        /// P3: each acceptor counts once.
        AcceptsAreDistinct,
        /// P3: a round's timer is set once.
        TimerIsArmedOnce,
        /// P4: a round is voided before it is undone.
        VoidBeforeUndo,
        /// P5: a failed renewal is not undone by a release.
        FailedRenewalIsNotUndone,
        /// P8: only a fresh round is undone when its client leaves.
        AbandonReleasesFreshOnly,
        /// P5: each renewal has a fresh ballot.
        RenewalHasFreshBallot,
        /// P6: a release drops the holder's belief before anything is sent.
        ReleaseDropsBeliefFirst,
        /// P6: a released tenure is never believed again, even if a grant of it arrives.
        ReleasedTenureIsNeverUsed,
        /// P6: a release is confirmed only by a majority.
        ReleaseNeedsMajority,
        /// P6: a release that may have ended the tenure, or not, says that this is not known.
        UnknownEndIsTold,
        /// P10: an inspection tells an end that a majority stores.
        EndNeedsMajority,
        /// P7: a client renews only a tenure that was granted to it.
        OnlyOwnTenureIsRenewed,
        /// A1: `ttl <= M` holds in Renew and Heal too.
        RenewTtlIsBounded,
        /// T1: the belief is shorter than the exclusion by the drift margin.
        BeliefKeepsDriftMargin,
        /// T2: the time a server kept a request waiting is divided by r.
        WaitedIsShrunkByDrift,
        /// T3, R3: the quarantine covers the longest ttl.
        QuarantineCoversLongestTtl,
        /// R2: no lease above the durable ceiling is accepted.
        TtlWaitsForDisk,
        /// R2: `lease_ceiling` counts renewals and heals.
        LeaseCeilingCountsRenewals,
        /// R2: `lease_ceiling` is not lowered during quarantine.
        LeaseCeilingKeptInQuarantine,
        /// R4: a snapshot is used once.
        SnapshotIsUsedOnce,
        /// R4: a quarantined node writes no snapshot.
        NoSnapshotFromQuarantine,
        /// K1: a Prepare of a change raises `promised`.
        ChangePrepareRaisesPromised,
        /// K2: a Store below `promised` is rejected.
        StoreObeysPromise,
        /// K2: a Store raises `promised`.
        StoreRaisesPromised,
        /// K2: a Store is answered once it is on disk.
        StoredAfterDisk,
        /// K3: an end has passed once a durable file time says so.
        EndIsDurable,
        /// K3: while a register is written, no Prepare or Propose for its name is answered.
        FreeIsDurable,
        /// K4: a held register refuses a Propose.
        HeldRefusesPropose,
        /// K5: only a register with exactly the ballot that all store is settled or forgotten.
        ForgetsOneBallot,
        /// K5: All is sent once every member stored the value.
        ForgetNeedsAll,
        /// K5: All is sent.
        ForgetAtAll,
        /// K6: the accepted value with the highest ballot is current.
        HighestWins,
        /// K6: a majority promises before a value is chosen.
        PromisesOfMajority,
        /// K6: an end has passed if a member with this very ballot says so.
        EndOfThisBallot,
        /// K6: a value was never chosen if a majority does not hold it.
        DropNeedsMajority,
        /// K6: a value that was never chosen is dropped.
        UnchosenIsDropped,
        /// K7: a majority stores the value before it counts.
        StoredByMajority,
        /// K7: a check stores the end that was reported.
        RepairCarriesEnd,
        /// K7: what a change that changes nothing found is stored before it is answered.
        NotHeldIsWritten,
        /// K7: the fence of a value that a minority reported rises.
        FenceRises,
        /// K8: a held value is not stored while a lease of another tenure is live.
        OtherLeaseBlocks,
        /// K8: a Keep needs the value or the lease of its tenure.
        KeepNeedsLease,
        /// K8: a value that was never chosen is freed only while no lease is live.
        DropWaits,
        /// K8: a release frees a register with a lower fence, and no other.
        ReleaseComparesFence,
        /// K8: Free names the release that ended the tenure.
        FreeNamesRelease,
        /// K9: a value stored by a late majority is worth nothing.
        LateKeepCountsForNothing,
        /// K13: the new set stores free registers too before a change of members ends.
        FreeRegistersMove,
        /// Invariant 5: a quorum is more than half of the members.
        QuorumIsMajority,
        /// C1: a node handles lease messages of its own epoch only.
        MessagesOfOwnEpochOnly,
        /// C2: adoption raises the floor to the configuration's.
        AdoptionRaisesFloor,
        /// C2: adoption keeps the accepted leases.
        AdoptionKeepsRecords,
        /// E2: a record counts only if it was stored in this era.
        RecordsOfTheEraCount,
        /// E2: to a node that joins, no record from before counts.
        NewcomerForgetsRecords,
        /// E1: a Heal dates the record, as a Propose does.
        HealDatesRecord,
        /// E4: a snapshot says which records are dated.
        SnapshotKeepsDates,
        /// J1: in a joint epoch a majority of the new set stores the lease.
        NewSetStores,
        /// J1: in a joint epoch a majority of the old set confirms.
        OldSetConfirms,
        /// J1: the new set is asked only after a majority of the old set has accepted.
        OldConfirmsFirst,
        /// J1: the new set is healed, so that it need not have stored the lease before.
        NewSetIsHealed,
        /// J3: a round counts answers of its own epoch only.
        RoundEndsWithItsEpoch,
        /// D1, W1: a vote is on disk before it is answered.
        VoteIsDurable,
        /// D2, C3: a coordinator proposes the accepted value that the promises report.
        CoordinatorTakesSeenValue,
        /// D3, M4, C3: a majority of the old set seals an epoch and decides the next.
        DecisionNeedsMajority,
        /// D4, C5: the number of a coordinator is on disk before any peer learns of it.
        CoordinatorNumberIsDurable,
        /// D5, C2, C3: a node that lost its disk neither adopts nor votes as the member it was.
        VoterIsTheBirthListed,
        /// D6, M6, C3: a node votes only on the epoch after its own.
        VoteOnlyInOwnEpoch,
        /// D7, M5, C3: the old set decides, not the new one.
        OldSetDecides,
        /// D8, U2: all members of the list decide epoch 1.
        FoundingIsUnanimous,
        /// D9, U2: the number of an attempt names the birth of its coordinator.
        NumberNamesBirth,
        /// D10, C3: an answer counts only in the epoch that it was given for.
        AnswerCountsInItsEpoch,
        /// M1, C6: a voter waits before it votes for End.
        EndWaits,
        /// M2, C6: that wait covers the longest ttl.
        WaitCoversLongestTtl,
        /// M3, C6: every voter waits, not only the coordinator.
        EveryVoterWaits,
        /// M26, C6: after a restart the wait counts from the start.
        WaitCountsAnewAfterRestart,
        /// M6, C2: a node votes only after all its shards have changed over.
        VotesAfterAllShardsChanged,
        /// M7, C4: the floor covers what the voters had promised.
        FloorCoversPromises,
        /// M9, C4: a voter reads its highest counter after its shards have changed over.
        TopReadAfterSeal,
        /// M18, W2: an adoption is on disk before the node acts on it.
        AdoptionIsDurableFirst,
        /// C11: a node believes a Config only of members that it knows.
        ConfigFromMembers,
        /// C11: a node adopts only what legal changes can lead to.
        ConfigFollows,
    }
}

impl Rule {
    /// The rules about changes of the members, which a cell in one epoch never applies.
    pub const OF_CHANGES: [Self; 12] = [
        Self::MessagesOfOwnEpochOnly,
        Self::AdoptionRaisesFloor,
        Self::AdoptionKeepsRecords,
        Self::RecordsOfTheEraCount,
        Self::NewcomerForgetsRecords,
        Self::HealDatesRecord,
        Self::SnapshotKeepsDates,
        Self::NewSetStores,
        Self::OldSetConfirms,
        Self::OldConfirmsFirst,
        Self::NewSetIsHealed,
        Self::RoundEndsWithItsEpoch,
    ];

    /// The rules of [`Decider`](crate::Decider), which shards do not apply.
    pub const OF_DECISIONS: [Self; 20] = [
        Self::VoteIsDurable,
        Self::CoordinatorTakesSeenValue,
        Self::DecisionNeedsMajority,
        Self::CoordinatorNumberIsDurable,
        Self::VoterIsTheBirthListed,
        Self::VoteOnlyInOwnEpoch,
        Self::OldSetDecides,
        Self::FoundingIsUnanimous,
        Self::NumberNamesBirth,
        Self::AnswerCountsInItsEpoch,
        Self::EndWaits,
        Self::WaitCoversLongestTtl,
        Self::EveryVoterWaits,
        Self::WaitCountsAnewAfterRestart,
        Self::VotesAfterAllShardsChanged,
        Self::FloorCoversPromises,
        Self::TopReadAfterSeal,
        Self::AdoptionIsDurableFirst,
        Self::ConfigFromMembers,
        Self::ConfigFollows,
    ];
}

/// The rules in force: all of them, except in a build with the feature `mutants`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "mutants")]
    off: Option<Rule>,
}

impl Rules {
    /// Every rule in force.
    #[cfg(not(feature = "mutants"))]
    pub const ALL: Self = Self {};
    /// Every rule in force.
    #[cfg(feature = "mutants")]
    pub const ALL: Self = Self { off: None };

    /// All rules except one.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    /// Whether a rule is in force.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    #[inline]
    pub const fn on(self, _rule: Rule) -> bool {
        true
    }

    /// Whether a rule is in force.
    #[cfg(feature = "mutants")]
    #[must_use]
    #[inline]
    pub fn on(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
