//! How many files this process may open, and how many of them clients may use.
//!
//! A node without free files cannot reach its peers or write its record. So clients get what the
//! node does not need.

use paxoslease_server::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// For connections of peers and of unknown nodes, records, logs, and the process itself.
const RESERVE: u64 = 512;
/// At least two clients may connect, so that an operator can find the problem.
const CLIENTS_MIN: u64 = 2;

/// Raises the limit to what the configuration could use, and accepts less.
pub(super) fn fit(config: &mut Config) {
    let most = config.limits.connections;
    let ports = ports(config);
    let wanted = u64::from(most) * ports + RESERVE;
    let allowed = allow(wanted);
    let connections = connections(most, ports, allowed);
    if connections < most {
        warn!(
            "open-file limit is {}, {wanted} wanted: at most {connections} clients; raise it \
             (`ulimit -n`, LimitNOFILE) or lower limits.connections",
            allowed.unwrap_or_default()
        );
        config.limits.connections = connections;
    }
}

/// The number of ports for clients; each has the same number of connections.
fn ports(config: &Config) -> u64 {
    [config.listen.for_clients(), config.listen.for_http()].iter().flatten().count() as u64
}

/// How many files may be open now, if there is a limit.
fn allow(wanted: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = current?;
    let more = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if more <= allowed {
        return Some(allowed);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(more), maximum }) {
        Ok(()) => Some(more),
        Err(_) => Some(allowed),
    }
}

fn connections(most: u32, ports: u64, allowed: Option<u64>) -> u32 {
    let Some(allowed) = allowed else { return most };
    let fit = (allowed.saturating_sub(RESERVE) / ports.max(1)).max(CLIENTS_MIN);
    u32::try_from(fit).unwrap_or(u32::MAX).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_counts_unless_it_is_off() {
        let mut config = Config::new(paxoslease_node::Config::new("c", 1));
        assert_eq!(ports(&config), 2, "unless told otherwise");
        config.listen.http = Some("off".to_owned());
        assert_eq!(ports(&config), 1);
        config.listen.clients = Some("127.0.0.1:1".to_owned());
        assert_eq!(ports(&config), 1);
    }

    #[test]
    fn clients_get_the_remaining_files_and_at_least_two() {
        assert_eq!(connections(10_000, 2, None), 10_000);
        assert_eq!(connections(10_000, 2, Some(1_048_576)), 10_000);
        assert_eq!(connections(10_000, 2, Some(20_512)), 10_000);
        assert_eq!(connections(10_000, 2, Some(20_510)), 9_999);
        assert_eq!(connections(10_000, 2, Some(1024)), 256);
        assert_eq!(connections(10_000, 1, Some(1024)), 512);
        assert_eq!(connections(10_000, 2, Some(64)), 2);
        assert_eq!(connections(10_000, 0, Some(64)), 2, "no client can connect anyway");
    }
}
