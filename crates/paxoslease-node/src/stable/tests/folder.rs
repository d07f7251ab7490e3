//! What each step of `folder.txt` with a data folder leads to.

use std::collections::BTreeMap;
use std::{env, fs};

use super::*;

#[derive(Default)]
struct Scene {
    disk: VolatileFiles,
    /// Opened by a step of its own, before the disk fails.
    folder: Option<Folder>,
    /// Snapshots of which an operator has a copy.
    kept: BTreeMap<String, Vec<u8>>,
}

impl Scene {
    /// Does one step, and returns what came of it.
    fn step(&mut self, step: &str) -> String {
        let words: Vec<&str> = step.split(' ').collect();
        let wants = |word| words.contains(&word);
        let wishes = Wishes {
            new_cell: wants("new_cell"),
            reset: wants("reset"),
            proposes: wants("proposes"),
            ..plain()
        };
        let disk = self.disk.clone();
        let mut folder = || self.folder.take().unwrap_or_else(|| disk.folder());
        match words[..] {
            ["open"] => self.folder = Some(disk.folder()),
            ["fault", "none"] => disk.set_fault(None),
            ["fault", "full"] => disk.set_fault(Some(ErrorKind::StorageFull)),
            ["fault", "read_only"] => disk.set_fault(Some(ErrorKind::ReadOnlyFilesystem)),
            ["dies_after", changes] => disk.dies_after(number(changes)),
            ["hold", ref names @ ..] => disk.hold(names),
            ["lose", file] => disk.tamper(&format!("/var/node/{file}"), None),
            ["cut", "record"] => {
                let bytes = disk.content(RECORD).expect("is there");
                disk.tamper(RECORD, Some(bytes[..3].to_vec()));
            }
            ["keep", name] => drop(self.kept.insert(name.to_owned(), disk.snapshot())),
            ["restore", name] => disk.tamper(SNAPSHOT, Some(self.kept[name].clone())),
            ["has", "snapshot"] => return disk.has_snapshot().to_string(),
            ["load"] => return shown(folder().load()),
            ["record", ref record @ ..] => {
                let mut folder = folder();
                let written = folder.write_record(&stable_of(record));
                self.folder = Some(folder).filter(|_| written.is_err());
                return written.err().map_or_else(String::new, |error| error.to_string());
            }
            ["snapshot", name] => return shown(folder().write_snapshot(&[snapshot_of(name)])),
            ["run", seconds] => {
                let mut folder = folder();
                let shard = folder.start(&plain()).expect("starts").new_shard();
                let over_at = Instant::ZERO.after(Duration::from_secs(number(seconds)));
                return shown(folder.write_snapshot(&[shard.stop(over_at)]));
            }
            ["start", "as", id] => {
                let folder = Folder::open_volatile(&disk, node(number(id)));
                return started(folder.expect("opens").start(&plain()));
            }
            ["start", ..] => return started(folder().start(&wishes)),
            ["explain", "no_folder", ..] => {
                let start = Startup::without_folder(&wishes);
                return format!("{}: {start}", started(Ok(start.clone())));
            }
            ["explain", ..] => {
                return shown(folder().start(&wishes).map(|start| Text(start.to_string())));
            }
            _ if step == "found" => {
                let mut record = disk.record();
                record.configuration = Some(founded(Vote::default()));
                folder().write_record(&record).expect("room");
            }
            _ => panic!("unknown step"),
        }
        String::new()
    }
}

fn shown<T: std::fmt::Debug>(outcome: Result<T, impl ToString>) -> String {
    outcome.map_or_else(
        |error| format!("refused: {}", error.to_string().replace('\n', " ")),
        |value| format!("{value:?}"),
    )
}

/// Shown as it is.
struct Text(String);

impl Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A record as the scripts write it: of a member, unless it begins with `blank`.
fn stable_of(words: &[&str]) -> StableRecord {
    match words {
        ["blank", ceilings] => stable_record(record_of(ceilings)),
        [ceilings] => member_record(record_of(ceilings)),
        _ => panic!("not a record: {words:?}"),
    }
}

/// How a node starts, when its only shard votes, and the first event of that shard.
fn started(outcome: Result<Startup, StableError>) -> String {
    let Ok(start) = outcome else { return shown(outcome) };
    let mut shard = start.new_shard();
    let Membership { birth, list, stable, .. } = &start.membership;
    let epoch = stable.configuration.epoch();
    let who = format!("{list:?} in epoch {epoch}, {birth:?}");
    let leases = match &start.leases {
        Leases::Snapshot(record, _) => {
            return format!("{record:?}, {who}, holds {:?}", held(&shard));
        }
        Leases::None(start) => start,
    };
    let record = start.record().map(|record| record.ceilings).unwrap_or_default();
    assert_eq!(shard.record(), record, "{leases:?}");
    let wait = shard.quarantine_remaining(Instant::ZERO);
    let votes = match shard.floor() {
        None => "does not vote".to_owned(),
        Some(_) => format!("votes after {wait:?}"),
    };
    format!("{leases:?}, {who}, {votes}, begins with {:?}", shard.poll_event())
}

#[test]
fn every_step_in_the_script_has_its_outcome() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stable/tests/folder.txt");
    let recorded = fs::read_to_string(path).expect("is there");
    let (mut scene, mut lines) = (Scene::default(), Vec::new());
    for line in recorded.lines() {
        let step = line.split(" => ").next().expect("a step");
        let outcome = match step {
            "" => {
                scene = Scene::default();
                String::new()
            }
            comment if comment.starts_with('#') => String::new(),
            step => scene.step(step),
        };
        lines.push(if outcome.is_empty() { step.into() } else { format!("{step} => {outcome}") });
    }
    if env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        return fs::write(path, lines.join("\n") + "\n").expect("room");
    }
    for (number, (found, expected)) in (1..).zip(lines.iter().zip(recorded.lines())) {
        assert_eq!(found, expected, "line {number} of {path}");
    }
}
