//! Writes files that other users must not read or create, and that readers must never see
//! incomplete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use rustix::process::geteuid;

/// Only the owner may read and write.
pub(super) const SECRET: u32 = 0o600;
pub(super) const PUBLIC: u32 = 0o644;

/// Creates a folder for secrets, if it does not exist.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Refuses a file of another user, who could know the key of the authority, or replace its files.
pub(super) fn check_owner(path: &Path) -> anyhow::Result<()> {
    let found = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let (owner, own) = (found.uid(), geteuid().as_raw());
    ensure!(
        is_trusted(owner, own),
        "{} belongs to user {owner}, and you are user {own}: use a folder of your own, with --out",
        path.display()
    );
    Ok(())
}

const fn is_trusted(owner: u32, own: u32) -> bool {
    const ROOT: u32 = 0;
    owner == own || owner == ROOT
}

/// Writes a file that must not exist.
pub(super) fn create(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(file, text)
}

/// Writes a file that may exist. A reader sees either the whole old or the whole new file.
pub(super) fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    // Left by an interrupted command.
    let _none = fs::remove_file(&draft);
    create(&draft, mode, text)?;
    fs::rename(&draft, path)
}

fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_user_or_root_made_is_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
    }
}
