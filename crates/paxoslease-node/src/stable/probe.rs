//! Whether a node could use a data folder, without using it.
//!
//! It tries, because permissions alone do not tell: a file system may be full, read-only, or not a
//! place for files. Deliberately absent: the lock and the content of the folder, which may be in
//! use.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf, absolute};

use super::StableError;
use super::files::{Files as _, OsFiles};

/// The file that shows that files can be created.
const PROBE: &str = "check.tmp";

/// What a check of a data folder found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataDirCheck {
    /// A node of this user can use the folder.
    Usable,
    /// The folder is missing, and this user may not create it. An administrator or a service
    /// manager has to.
    MustBeCreated,
}

/// Checks whether this process could create this data folder, if it is missing, and write to it.
/// Leaves nothing behind.
///
/// # Errors
/// What the system refused.
pub fn check_data_dir(path: &Path) -> Result<DataDirCheck, StableError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| StableError::Io { doing, path, source }
    };
    let path = absolute(path).map_err(failed("find", path))?;
    // The innermost first, which is the order in which they can be removed.
    let missing = path.ancestors().take_while(|folder| !folder.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    let found = match OsFiles.create_folder(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Ok(DataDirCheck::MustBeCreated)
        }
        Err(error) => Err(failed("create the data folder", &path)(error)),
        Ok(()) => match OsFiles.open(&path.join(PROBE)) {
            Err(error) => Err(failed("write to the data folder", &path)(error)),
            Ok(_) => Ok(DataDirCheck::Usable),
        },
    };
    let _never_written = OsFiles.unlink(&path.join(PROBE));
    for folder in missing {
        let _never_created = fs::remove_dir(folder);
    }
    found
}
