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
        let wishes = Wishes { new_cell: wants("new_cell"), reset: wants("reset"), ..PLAIN };
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
            ["record", record] => {
                let mut folder = folder();
                let written = folder.write_record(record_of(record));
                self.folder = Some(folder).filter(|_| written.is_err());
                return written.err().map_or_else(String::new, |error| error.to_string());
            }
            ["snapshot", name] => return shown(folder().write_snapshot(&[snapshot_of(name)])),
            ["run", seconds] => {
                let mut folder = folder();
                let shard = folder.start(PLAIN).expect("starts").new_shard();
                let over_at = Instant::ZERO.after(Duration::from_secs(number(seconds)));
                return shown(folder.write_snapshot(&[shard.stop(over_at)]));
            }
            ["start", "as", id] => {
                let folder = Folder::open_volatile(&disk, node(number(id)));
                return started(folder.expect("opens").start(PLAIN));
            }
            ["start", ..] => return started(folder().start(wishes)),
            ["decide", loaded, ..] => {
                let loaded = match loaded {
                    "no_folder" => None,
                    "fresh" => Some(Loaded::Fresh),
                    record => Some(Loaded::Record(record_of(record))),
                };
                let snapshot = wants("leases").then(|| vec![1, 2, 3]);
                let start = Startup::decide(loaded, snapshot, wishes);
                return match start {
                    Startup::Snapshot(..) => format!("{start:?}: {start}"),
                    Startup::Empty { .. } => format!("{}: {start}", started(Ok(start.clone()))),
                };
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

/// How a node starts, when its only shard votes, and the first event of that shard.
fn started(outcome: Result<Startup, StableError>) -> String {
    let Ok(start) = outcome else { return shown(outcome) };
    let mut shard = start.new_shard();
    if let Startup::Snapshot(record, _) = start {
        return format!("{record:?}, {:?} are held", held(&shard));
    }
    assert_eq!(shard.record(), start.record().unwrap_or_default(), "{start:?}");
    let wait = shard.quarantine_remaining(Instant::ZERO);
    format!("{start:?}, votes after {wait:?}, begins with {:?}", shard.poll_event())
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
