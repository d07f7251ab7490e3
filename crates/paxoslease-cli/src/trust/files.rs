//! Files that must not be read by others, lost, or seen half-written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// For the owner alone.
pub(super) const SECRET: u32 = 0o600;
pub(super) const PUBLIC: u32 = 0o644;

/// A folder for secrets, unless there is one.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that must not exist.
pub(super) fn create(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(file, text)
}

/// Writes a file whether it exists or not; whoever reads it meanwhile sees all of the old or all
/// of the new one.
pub(super) fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    // Left behind by somebody who was interrupted.
    let _none = fs::remove_file(&draft);
    create(&draft, mode, text)?;
    fs::rename(&draft, path)
}

fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
