//! A cell of three shells with data folders, on an address that no other test uses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};
use std::process;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::beliefs::Beliefs;
use super::shell::{Shell, command};

pub(crate) const MEMBERS: [u16; 3] = [1, 2, 3];
const NAME: &str = "processes";
/// Longer than the leases of these tests, so that a test notices if a node waits for it.
pub(crate) const MAX_LEASE_SECS: u64 = 4;

pub(crate) struct Cell {
    folder: PathBuf,
    host: String,
    shells: BTreeMap<u16, Shell>,
    beliefs: Rc<RefCell<Beliefs>>,
}

impl Cell {
    /// No node runs yet.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [.., high, low] = process::id().to_be_bytes();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("processes-{}-{count}", process::id()));
        fs::create_dir_all(&folder).expect("room");
        Self {
            folder,
            host: format!("127.{high}.{low}.{count}"),
            shells: BTreeMap::new(),
            beliefs: Rc::default(),
        }
    }

    /// All three run, for the first time, and are connected.
    pub(crate) fn founded() -> Self {
        let mut cell = Self::new();
        for id in MEMBERS {
            cell.start(id, &["--new-cell"]);
        }
        cell.connect();
        cell
    }

    /// A port below those that the system gives to dialling sockets, so that no other process gets
    /// it while the node is down.
    pub(crate) fn address(&self, id: u16) -> String {
        format!("{}:{}", self.host, 7400 + id)
    }

    pub(crate) fn data_dir(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}"))
    }

    /// The arguments of a node: flags, and lines of its configuration. A line of `changes` replaces
    /// the line with the same key.
    fn args(&self, id: u16, changes: &[&str]) -> Vec<String> {
        let role = if MEMBERS.contains(&id) { "member" } else { "proposer" };
        let mut lines = vec![
            format!("cell = {NAME:?}"),
            format!("node = {id}"),
            format!("role = {role:?}"),
            format!("max_lease = '{MAX_LEASE_SECS}s'"),
            format!("data_dir = {:?}", self.data_dir(id)),
            "shards = 2".to_owned(),
            "timing.heartbeat = '100ms'".to_owned(),
            "timing.peer_timeout = '600ms'".to_owned(),
            "timing.request_timeout = '3s'".to_owned(),
        ];
        lines.extend(MEMBERS.map(|id| format!("peers.{id} = {:?}", self.address(id))));
        let is_replaced = |line: &String| {
            let key = line.split_inclusive(" = ").next().expect("a key");
            changes.iter().any(|change| change.starts_with(key))
        };
        lines.retain(|line| !is_replaced(line));
        lines.extend(changes.iter().map(ToString::to_string));
        lines
    }

    pub(crate) fn start(&mut self, id: u16, changes: &[&str]) {
        let shell = Shell::start(&self.args(id, changes), Rc::clone(&self.beliefs));
        self.shells.insert(id, shell);
    }

    /// Starts a node that must not start, and looks for these parts in its error.
    pub(crate) fn is_refused(&self, id: u16, changes: &[&str], parts: &[&str]) {
        let output = command(&self.args(id, changes)).output().expect("sh is there");
        assert!(!output.status.success(), "it started");
        let error = String::from_utf8(output.stderr).expect("text");
        for part in parts {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }

    /// Waits until all members have accepted this many leases. A member that has not has nothing to
    /// wait for after a crash.
    pub(crate) fn until_accepted(&mut self, leases: u64) {
        for id in MEMBERS {
            self[id].until("an acceptor of each lease", |status| status["leases"] == leases);
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, id: u16) {
        drop(self.shells.remove(&id).expect("it runs"));
    }

    /// A clean stop.
    pub(crate) fn quit(&mut self, id: u16) {
        self.shells.remove(&id).expect("it runs").quit();
    }

    /// Waits until all nodes that run are connected to all members that run.
    pub(crate) fn connect(&mut self) {
        let members: Vec<u16> =
            MEMBERS.into_iter().filter(|id| self.shells.contains_key(id)).collect();
        for (id, shell) in &mut self.shells {
            let others: Vec<u16> = members.iter().copied().filter(|peer| peer != id).collect();
            shell.until_up(&others);
        }
    }
}

impl Index<u16> for Cell {
    type Output = Shell;

    fn index(&self, id: u16) -> &Shell {
        &self.shells[&id]
    }
}

impl IndexMut<u16> for Cell {
    fn index_mut(&mut self, id: u16) -> &mut Shell {
        self.shells.get_mut(&id).expect("it runs")
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.shells.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
