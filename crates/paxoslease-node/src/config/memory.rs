//! How much memory this process may use: that of the machine, or less if a control group limits it.
//! The default bounds on leases follow from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// If it cannot be found out.
const UNKNOWN: u64 = 1 << 30;
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory in bytes, at the first call.
pub(super) fn available() -> u64 {
    static AVAILABLE: LazyLock<u64> = LazyLock::new(|| {
        let machine = of_machine().filter(|bytes| *bytes > 0).unwrap_or(UNKNOWN);
        let read = |path: &Path| fs::read_to_string(path).ok();
        of_cgroups(read).map_or(machine, |bytes| bytes.min(machine))
    });
    *AVAILABLE
}

#[cfg(target_os = "linux")]
fn of_machine() -> Option<u64> {
    let machine = rustix::system::sysinfo();
    #[expect(clippy::useless_conversion, reason = "a register may have 32 bits")]
    let units = u64::from(machine.totalram);
    Some(units.saturating_mul(machine.mem_unit.into()))
}

#[cfg(not(target_os = "linux"))]
fn of_machine() -> Option<u64> {
    None
}

/// The least that this process' control group or one above it may use, of version 1 or 2.
fn of_cgroups(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let own = read(Path::new("/proc/self/cgroup"))?;
    let mut limits = Vec::new();
    for line in own.lines() {
        // `hierarchy:controllers:path`
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => (PathBuf::from(CGROUPS), "memory.max"),
            some if some.split(',').any(|controller| controller == "memory") => {
                (Path::new(CGROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(&root));
        // Without a limit, the file contains "max". A group outside a container has no file here.
        let limit = |group: &Path| read(&group.join(file))?.trim().parse::<u64>().ok();
        limits.extend(groups.filter_map(limit));
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths and contents.
    type Files = [(&'static str, &'static str)];

    /// The limit that is found in these files.
    fn found(files: &Files) -> Option<u64> {
        let text = |path: &Path| files.iter().find(|(at, _)| Path::new(at) == path);
        of_cgroups(|path| text(path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_smallest_limit_of_the_group_and_those_above_counts() {
        let own = ("/proc/self/cgroup", "0::/system.slice/paxoslease.service\n");
        let service = "/sys/fs/cgroup/system.slice/paxoslease.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        let container = ("/proc/self/cgroup", "0::/\n");
        let version_1 = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/pod/one\n0::/\n");
        let pod = "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes";
        let one = "/sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let cases: [(&Files, Option<u64>); 8] = [
            (&[own], None),
            (&[own, (service, "max\n")], None),
            (&[own, (service, "4096\n"), (slice, "max\n")], Some(4096)),
            (&[own, (service, "4096\n"), (slice, "1024\n")], Some(1024)),
            (&[container, ("/sys/fs/cgroup/memory.max", "1073741824\n")], Some(1 << 30)),
            (
                &[version_1, (pod, "2048\n"), (one, "4096\n"), (root, "9223372036854771712\n")],
                Some(2048),
            ),
            (&[], None),
            (&[("/proc/self/cgroup", "nonsense\n0::\n4:memory\n")], None),
        ];
        for (files, expected) in cases {
            assert_eq!(found(files), expected, "{files:?}");
        }
        assert!(available() > 0);
    }
}
