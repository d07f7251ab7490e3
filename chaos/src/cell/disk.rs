//! The data folder of a node: a small file system of its own where we are root, so that it can be
//! full; an ordinary folder elsewhere, and then it cannot.
//!
//! What a harness that was killed left mounted is found by its name and unmounted by the next.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// What all file systems of all harnesses are called, with the process id behind it.
const PREFIX: &str = "paxoslease-chaos-";
/// Enough for a record, a snapshot and what replaces them.
const SIZE: &str = "size=1m";

/// A data folder that can be broken.
pub struct Disk {
    /// The file system, or the folder that has to do.
    root: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// A new one.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(root: &Path) -> Result<Self> {
        fs::create_dir_all(root)?;
        let source = format!("{PREFIX}{}", std::process::id());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, &source]).arg(root);
        let is_mounted = quietly(&mut mount);
        fs::create_dir_all(root.join("data"))?;
        Ok(Self { root: root.to_owned(), is_mounted })
    }

    /// What a node is told.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Leaves no room, or gives it back. An ordinary folder always has room.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn fill(&self, full: bool) -> Result<()> {
        let filler = self.root.join("filler");
        if !full {
            return if filler.exists() { Ok(fs::remove_file(filler)?) } else { Ok(()) };
        }
        if self.is_mounted {
            let mut file = File::create(filler)?;
            while file.write_all(&[0; 4096]).is_ok() {}
        }
        Ok(())
    }

    /// Lets nothing be made in the folder, or lets it again. Root is stopped by no permissions, but
    /// by the attribute.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn protect(&self, protected: bool) -> Result<()> {
        if rustix::process::geteuid().is_root() {
            let attribute = if protected { "+i" } else { "-i" };
            let done = quietly(Command::new("chattr").arg(attribute).arg(self.path()));
            ensure!(done, "chattr {attribute} {} failed", self.path().display());
            return Ok(());
        }
        let mode = if protected { 0o500 } else { 0o700 };
        Ok(fs::set_permissions(self.path(), Permissions::from_mode(mode))?)
    }

    /// Whether [`Self::fill`] and [`Self::protect`] do anything here.
    #[must_use]
    pub fn can_break(&self) -> bool {
        self.is_mounted && self.protect(true).and_then(|()| self.protect(false)).is_ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _protected_no_more = self.protect(false);
        if self.is_mounted {
            quietly(Command::new("umount").arg("--lazy").arg(&self.root));
        }
    }
}

/// Unmounts what this harness mounted.
pub fn unmount_all() {
    unmount(|owner| owner == std::process::id());
}

/// Unmounts what harnesses that are dead left behind.
pub fn remove_leftovers() {
    unmount(|owner| !Path::new(&format!("/proc/{owner}")).exists());
}

fn unmount(is_meant: impl Fn(u32) -> bool) {
    for line in fs::read_to_string("/proc/mounts").unwrap_or_default().lines() {
        let mut fields = line.split_whitespace();
        let (Some(source), Some(target)) = (fields.next(), fields.next()) else { continue };
        let owner = source.strip_prefix(PREFIX).and_then(|owner| owner.parse().ok());
        if owner.is_some_and(&is_meant) {
            quietly(Command::new("umount").arg("--lazy").arg(target));
        }
    }
}

fn quietly(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
