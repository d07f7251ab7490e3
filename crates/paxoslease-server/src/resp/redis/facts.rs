//! What drivers ask about a server when they connect: INFO and CONFIG GET.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use paxoslease_wire::resp::put_bulk;

use super::super::Common;
use super::super::command::Command;
use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::Outcome;
use super::glob::Glob;

/// The version of Redis whose commands and replies the dialect follows.
const VERSION: &str = "7.2.0";

/// What `CONFIG GET` tells, which is true of a node: nothing is kept on disk, evicted or notified.
const SETTINGS: [(&str, &str); 9] = [
    ("appendonly", "no"),
    ("cluster-enabled", "no"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("replica-read-only", "no"),
    ("save", ""),
    ("timeout", "0"),
];

/// The lines of INFO that drivers look for.
pub(in super::super) fn put_info(common: &Common, info: &mut String) {
    let redis = &common.server.config.redis;
    if !redis.enabled {
        return;
    }
    // Writing to a string cannot fail.
    let _written = write!(
        info,
        "\r\n# Redis\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\narch_bits:64\r\n\
         cluster_enabled:0\r\nloading:0\r\nrole:master\r\nconnected_slaves:0\r\n\
         redis_testing:{}\r\ndurable_leases:{}\r\nturn_steps_max:{}\r\n",
        u8::from(redis.testing),
        common.server.config.node.durable_leases,
        common.server.turn_steps_max.load(Ordering::Relaxed),
    );
}

impl Session {
    pub(super) fn config<'a>(&mut self, common: &mut Common, args: &[&'a [u8]]) -> Outcome<'a> {
        if !args[0].eq_ignore_ascii_case(b"GET") || args.len() < 2 {
            return Err(ReplyError::Unexpected(args[0], Command::RedisConfig.usage()));
        }
        let pattern = |arg: &&[u8]| Glob::new(&arg.to_ascii_lowercase());
        let patterns: Vec<Glob> =
            args[1..].iter().map(pattern).collect::<Result<_, _>>().map_err(ReplyError::Glob)?;
        let is_asked = |(key, _): &&(&str, &str)| {
            patterns.iter().any(|pattern| pattern.compare(key.as_bytes()).is_match)
        };
        let found: Vec<_> = SETTINGS.iter().filter(is_asked).collect();
        self.reply(common, |protocol, out| {
            protocol.put_map(out, found.len());
            for (key, value) in found {
                put_bulk(out, key.as_bytes());
                put_bulk(out, value.as_bytes());
            }
        });
        Ok(())
    }
}
