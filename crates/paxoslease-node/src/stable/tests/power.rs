//! The shipped folder on files that lose unsynced changes at a power failure: every moment of
//! failure, and every combination of changes that survive it.

use super::*;

fn open(files: &VolatileFiles) -> Result<Folder, StableError> {
    Folder::open_volatile(files, node(1))
}

/// Ballots count from zero, so that what was confirmed can be compared.
fn wishes(birth: u64) -> Wishes {
    Wishes { counter: 0, birth: Birth(birth), ..plain() }
}

/// The record of a member that has promised this number.
fn voted(birth: Birth, number: u64) -> StableRecord {
    let promised = Some(DecisionNumber { counter: number, node: node(1), birth });
    let vote = Vote { promised, accepted: None };
    let ceilings = record(number, 100);
    let configuration = Some(founded(vote));
    StableRecord { birth, ceilings, configuration, has_durable: false }
}

/// What the disk confirmed to processes, one after the other.
#[derive(Default)]
struct Told {
    /// The highest record that was confirmed. The vote in it has the same number.
    confirmed: u64,
    /// The birth of the first start that was confirmed.
    birth: Option<Birth>,
    /// How many starts there were. Each offers another birth.
    starts: u64,
    /// Snapshots that a start was given.
    used: Vec<Vec<u8>>,
    /// The last change that was confirmed is a snapshot.
    snapshot_left: bool,
}

impl Told {
    /// One process starts, raises the record twice and stops cleanly. `None` if it dies.
    fn live(&mut self, files: &VolatileFiles) -> Option<()> {
        self.snapshot_left = false;
        let mut folder = open(files).ok()?;
        self.starts += 1;
        let start = folder.start(&wishes(self.starts)).ok()?;
        let birth = start.membership.birth;
        assert_eq!(*self.birth.get_or_insert(birth), birth);
        if let Leases::Snapshot(_, bytes) = start.leases {
            self.used.push(bytes);
        }
        for _ in 0..2 {
            folder.write_record(&voted(birth, self.confirmed + 1)).ok()?;
            self.confirmed += 1;
        }
        // Every process holds another lease, so no two snapshots are equal.
        let name = format!("lease-{}", self.confirmed);
        assert!(folder.write_snapshot(&[snapshot_of(&name)]).ok()?);
        self.snapshot_left = true;
        Some(())
    }

    /// Checks every state that a power failure may leave.
    fn judge(&self, files: &VolatileFiles) {
        for survivor in files.survivors() {
            let next = open(&survivor).expect("opens").start(&wishes(u64::MAX));
            let next = next.expect("is never refused");
            let found = next.record().expect("has a disk");
            let vote = found.configuration.and_then(|stable| stable.vote.promised);
            let found = found.ceilings.ballot_ceiling;
            assert!(self.birth.is_none_or(|birth| birth == next.membership.birth), "{next:?}");
            let voted = vote.map_or(0, |number| number.counter);
            assert!(voted >= self.confirmed, "a vote is gone: {next:?}");
            let is_crash = matches!(next.leases, Leases::None(Start::Crash(_)));
            let known = is_crash || matches!(next.leases, Leases::Snapshot(..));
            assert!(self.confirmed == 0 || known, "a confirmed record is gone: {next:?}");
            assert!(found >= self.confirmed, "{} was confirmed: {next:?}", self.confirmed);
            if let Leases::Snapshot(_, bytes) = &next.leases {
                assert!(!self.used.contains(bytes), "a snapshot was used twice");
            }
            let left = matches!(next.leases, Leases::Snapshot(..));
            assert!(left || !self.snapshot_left, "a confirmed snapshot is gone: {next:?}");
            if self.confirmed > 0 {
                survivor.unlink(Path::new("/var/node/record")).expect("is there");
                let lost = open(&survivor).expect("opens").start(&plain());
                assert!(matches!(lost, Err(StableError::Lost { .. })), "{lost:?}");
            }
        }
    }
}

/// More changes than three processes make.
const CHANGES_MAX: u64 = 200;

#[test]
fn a_power_failure_at_any_moment_keeps_what_was_confirmed() {
    for dies_after in 0..=CHANGES_MAX {
        let files = VolatileFiles::default();
        files.dies_after(dies_after);
        let mut told = Told::default();
        while told.confirmed < 6 && told.live(&files).is_some() {}
        told.judge(&files);
        assert!(dies_after < CHANGES_MAX || told.used.len() == 2, "every process had its turn");
    }
}

#[test]
fn what_a_killed_process_left_unsynced_is_synced_by_the_next() {
    for killed_after in 0..CHANGES_MAX {
        let files = VolatileFiles::default();
        files.dies_after(killed_after);
        let mut told = Told::default();
        if told.live(&files).is_some() {
            return;
        }
        let (before, confirmed) = (files.state().clone(), told.confirmed);
        let birth = told.birth;
        for dies_after in 0..CHANGES_MAX {
            let files = VolatileFiles::of(before.clone());
            files.dies_after(dies_after);
            let mut told = Told { confirmed, birth, ..Told::default() };
            let outcome = told.live(&files);
            told.judge(&files);
            if outcome.is_some() {
                break;
            }
        }
    }
    panic!("one process makes less than {CHANGES_MAX} changes");
}

#[test]
fn a_write_that_is_tried_again_after_a_failed_sync_is_durable() {
    for fails_after in 0..8 {
        let files = VolatileFiles::default();
        let mut folder = open(&files).expect("opens");
        let birth = folder.start(&wishes(1)).expect("starts").membership.birth;
        files.state().syncs_left = fails_after;
        let mut told = Told::default();
        for ceiling in 1..=3 {
            while folder.write_record(&voted(birth, ceiling)).is_err() {}
            (told.confirmed, told.birth) = (ceiling, Some(birth));
            told.judge(&files);
        }
    }
}

#[test]
fn a_new_folder_whose_path_cannot_be_synced_is_refused() {
    for fails_after in 0..2 {
        let files = VolatileFiles::default();
        files.state().syncs_left = fails_after;
        assert!(matches!(open(&files), Err(StableError::Io { .. })), "{fails_after}");
    }
}
