//! How much memory this process may use: that of the machine, or less where a control group says
//! so. Bounds on leases follow from it unless they are set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Where nothing can be found out.
const UNKNOWN: u64 = 1 << 30;
const CGROUPS: &str = "/sys/fs/cgroup";

/// In bytes, as it was when somebody first asked.
pub(super) fn available() -> u64 {
    static AVAILABLE: LazyLock<u64> = LazyLock::new(|| {
        let machine = rustix::system::sysinfo();
        #[expect(clippy::useless_conversion, reason = "a register may have 32 bits")]
        let machine = u64::from(machine.totalram).saturating_mul(machine.mem_unit.into());
        let machine = Some(machine).filter(|bytes| *bytes > 0).unwrap_or(UNKNOWN);
        let read = |path: &Path| fs::read_to_string(path).ok();
        of_cgroups(read).map_or(machine, |bytes| bytes.min(machine))
    });
    *AVAILABLE
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
        // "max" is no number, and none a group that cannot be seen from here.
        let limit = |group: &Path| read(&group.join(file))?.trim().parse::<u64>().ok();
        limits.extend(groups.filter_map(limit));
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where there are these files.
    fn found(files: &[(&str, &str)]) -> Option<u64> {
        let text = |path: &Path| files.iter().find(|(at, _)| Path::new(at) == path);
        of_cgroups(|path| text(path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let own = ("/proc/self/cgroup", "0::/system.slice/paxoslease.service\n");
        let service = "/sys/fs/cgroup/system.slice/paxoslease.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(found(&[own]), None);
        assert_eq!(found(&[own, (service, "max\n")]), None);
        assert_eq!(found(&[own, (service, "4096\n"), (slice, "max\n")]), Some(4096));
        assert_eq!(found(&[own, (service, "4096\n"), (slice, "1024\n")]), Some(1024));
    }

    #[test]
    fn a_container_sees_its_own_limit_at_the_root() {
        let own = ("/proc/self/cgroup", "0::/\n");
        assert_eq!(found(&[own, ("/sys/fs/cgroup/memory.max", "1073741824\n")]), Some(1 << 30));
    }

    #[test]
    fn version_1_has_a_hierarchy_for_memory() {
        let own = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/pod/one\n0::/\n");
        let pod = "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes";
        let one = "/sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let unlimited = "9223372036854771712\n";
        let files = [own, (pod, "2048\n"), (one, "4096\n"), (root, unlimited)];
        assert_eq!(found(&files), Some(2048));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("/proc/self/cgroup", "nonsense\n0::\n4:memory\n")]), None);
        assert!(available() > 0);
    }
}
