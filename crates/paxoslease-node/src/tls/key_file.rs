//! Reads a private key, only from a file that no other user can read or change. The command line
//! reads token files by the same rule.
//!
//! The rule is that of PostgreSQL. A file of this user is for this user alone, 0600 or less. A file
//! of root may be read by a group too, 0640 or less: so Kubernetes (`fsGroup`) and system-wide key
//! stores give a key to a service. A file of any other user is refused.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::TlsError;

const ROOT: u32 = 0;

/// Checks the open file, so that it cannot be exchanged between check and read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(Exposure { problem, remedy }) = Exposure::of(&metadata, path) {
        return Err(TlsError::KeyExposed { path: path.to_owned(), problem, remedy });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// How other users can read or change a file with a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exposure {
    /// What is wrong with the file.
    pub problem: String,
    /// What to do, as `run:` and a command.
    pub remedy: String,
}

impl Exposure {
    /// `None` if only this user, or a group that root chose, has access.
    #[must_use]
    pub fn of(metadata: &Metadata, path: &Path) -> Option<Self> {
        let own = rustix::process::geteuid().as_raw();
        let (problem, remedy) = exposure(metadata.mode(), metadata.uid(), own)?;
        Some(Self { problem, remedy: format!("run: {remedy} {}", path.display()) })
    }
}

/// The problem if another user has access, and the command that solves it.
fn exposure(mode: u32, owner: u32, own: u32) -> Option<(String, String)> {
    if owner != own && owner != ROOT {
        let problem = format!("it belongs to user {owner}, and this process runs as user {own}");
        return Some((problem, format!("chown {own}")));
    }
    let (denied, safe) = if owner == ROOT { (0o037, "640") } else { (0o077, "600") };
    let problem = || format!("its mode is {:04o}, so others have access to it", mode & 0o7777);
    (mode & denied != 0).then(|| (problem(), format!("chmod {safe}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_or_a_group_that_root_chose_may_read_a_key() {
        const SELF: u32 = 1000;
        const OTHER: u32 = 1001;
        for (mode, owner) in
            [(0o100_600, SELF), (0o400, SELF), (0o600, ROOT), (0o640, ROOT), (0o440, ROOT)]
        {
            assert_eq!(exposure(mode, owner, SELF), None, "{mode:o} of {owner}");
        }
        for (mode, owner, remedy) in [
            (0o100_644, SELF, "chmod 600"),
            (0o640, SELF, "chmod 600"),
            (0o620, SELF, "chmod 600"),
            (0o644, ROOT, "chmod 640"),
            (0o660, ROOT, "chmod 640"),
            (0o604, ROOT, "chmod 640"),
            (0o600, OTHER, "chown 1000"),
        ] {
            let told = exposure(mode, owner, SELF).map(|(_, remedy)| remedy);
            assert_eq!(told.as_deref(), Some(remedy), "{mode:o} of {owner}");
        }
        assert_eq!(exposure(0o640, ROOT, ROOT), None);
        assert!(exposure(0o600, SELF, ROOT).is_some(), "not even for root");
    }
}
