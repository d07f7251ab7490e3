//! The data folder of a node. With root it is a small file system, which a fault can fill.
//!
//! The next harness finds the mounts of a killed harness by their name, and unmounts them.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// The mount source of all harnesses, followed by the process id.
const PREFIX: &str = "paxoslease-chaos-";
/// Enough for two records and two snapshots.
const SIZE: &str = "size=1m";

pub struct Disk {
    /// A file system of its own, or a folder if mounting is not possible.
    root: PathBuf,
    is_mounted: bool,
}

impl Disk {
    pub fn new(root: &Path) -> Result<Self> {
        fs::create_dir_all(root)?;
        let source = format!("{PREFIX}{}", std::process::id());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, &source]).arg(root);
        let is_mounted = quietly(&mut mount);
        fs::create_dir_all(root.join("data"))?;
        Ok(Self { root: root.to_owned(), is_mounted })
    }

    pub fn path(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Fills the file system, or frees it. Does nothing in an ordinary folder.
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

    /// Forbids or allows to create files. For root that needs an attribute instead of permissions.
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

pub fn unmount_all() {
    unmount(|owner| owner == std::process::id());
}

/// Unmounts the file systems of dead harnesses.
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

/// Runs a command without its output, and tells whether it succeeded.
pub(crate) fn quietly(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
