//! The children of this process, its own and adopted ones.
//!
//! *Why no other process is ever signalled.* The system does not reuse the id of a child before its
//! parent has waited for it, and only the thread that calls this function waits. Ids of
//! grandchildren are not safe in that way; they become children when their parents end.

use rustix::process::{Pid, getpid};

/// All children, according to `/proc`; none where there is no `/proc`.
pub(crate) fn children() -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |process: std::fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read(process.path().join("stat")).ok()?;
        is_parent(getpid(), &String::from_utf8_lossy(&stat)).then(|| Pid::from_raw(pid)).flatten()
    };
    all.filter_map(child).collect()
}

/// Whether this is the `stat` of a child of `parent`.
fn is_parent(parent: Pid, stat: &str) -> bool {
    // The name in parentheses may contain parentheses and spaces.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    let ppid = after_name.and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    ppid == Some(parent.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_fake_its_parent() {
        let parent = Pid::from_raw(7).expect("not zero");
        assert!(is_parent(parent, "12 (sh) S 7 12 1 0"));
        assert!(is_parent(parent, "12 (a) S 1 (b) S 7 12 1 0"));
        assert!(!is_parent(parent, "12 (a) S 7 1) S 1 7 7 7"));
        assert!(!is_parent(parent, ""));
    }
}
