//! The commands as a table: name, usage and summary. Errors about usage, and the replies to
//! `COMMAND` and `COMMAND DOCS`, come from this table.

use std::ops::RangeInclusive;

use paxoslease_wire::resp::{Protocol, Request, put_array, put_bulk, put_integer, put_simple};

use crate::config::Verb;

/// What a command requires, where tokens are required.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Requirement {
    Nothing,
    /// Any token. Lists and watches check each name.
    Token,
    /// A token that permits this for the name in the first argument.
    Name(Verb),
    /// A token that permits to administrate the cell: `admin` for all names.
    Cell,
    /// The same, or a token that permits to read some name and sees less.
    Status,
}

impl Command {
    pub(super) fn usage(self) -> &'static str {
        SPECS[self as usize].usage
    }

    pub(super) fn name(self) -> &'static str {
        SPECS[self as usize].name
    }

    /// Whether it belongs to the Redis dialect.
    pub(super) const fn is_redis(self) -> bool {
        self as usize >= Self::RedisSet as usize
    }

    /// Whether a client of RESP2 may send it while it is subscribed to a channel.
    pub(super) const fn is_for_subscribers(self) -> bool {
        matches!(
            self,
            Self::RedisSubscribe
                | Self::RedisPSubscribe
                | Self::RedisUnsubscribe
                | Self::RedisPUnsubscribe
                | Self::Ping
                | Self::Quit
                | Self::Reset
        )
    }

    pub(super) fn requires(self, args: &[&[u8]]) -> Requirement {
        match self {
            Self::Release if ends_others(args) => Requirement::Name(Verb::Admin),
            Self::Acquire | Self::Release | Self::Renew => Requirement::Name(Verb::Acquire),
            Self::Get | Self::Ttl => Requirement::Name(Verb::Read),
            Self::Cancel | Self::List | Self::Watch | Self::Unwatch => Requirement::Token,
            // With a message, PING is an echo, which may be long.
            Self::Ping if args.is_empty() => Requirement::Nothing,
            Self::Ping | Self::Echo => Requirement::Token,
            Self::Client | Self::Commands | Self::Select => Requirement::Token,
            Self::Status => Requirement::Status,
            Self::Info | Self::Members => Requirement::Cell,
            Self::Hello | Self::Auth | Self::Reset | Self::Quit => Requirement::Nothing,
            // The operation checks each key.
            _ => Requirement::Token,
        }
    }
}

/// Whether a LEASE.RELEASE may end the tenure of another client: it has an option besides DURABLE.
fn ends_others(args: &[&[u8]]) -> bool {
    args.iter().skip(2).any(|option| !option.eq_ignore_ascii_case(b"DURABLE"))
}

/// One command. In its usage, words in capitals are literal and words in brackets are optional.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) command: Command,
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    summary: &'static str,
    /// The number of arguments, its own name included.
    args: RangeInclusive<usize>,
}

const fn spec(
    command: Command,
    args: RangeInclusive<usize>,
    usage: &'static str,
    summary: &'static str,
) -> Spec {
    let mut name_len = 0;
    while name_len < usage.len() && usage.as_bytes()[name_len] != b' ' {
        name_len += 1;
    }
    Spec { command, name: usage.split_at(name_len).0, usage, summary, args }
}

/// Makes [`Command`] and [`SPECS`] of one list: command, number of arguments, usage, and summary.
macro_rules! commands {
    ($($command:ident $args:expr => $usage:literal $summary:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Command {
            $($command,)*
        }

        pub(super) static SPECS: [Spec; [$(Command::$command),*].len()] =
            [$(spec(Command::$command, $args, $usage, $summary)),*];
    };
}

/// As many arguments as a request gives access to.
const MANY: usize = Request::REACHABLE;
/// Any number of arguments.
const ANY: usize = usize::MAX;

// Those of the hot path come first, because the search begins at the front.
commands! {
    Acquire 3..=12 =>
        "LEASE.ACQUIRE name ttl_ms [HOLDER holder] [WAIT wait_ms] [PERMITS n] [NOTIFY id] [DURABLE]"
        "Acquires a lease, or waits for it: fence, ttl_ms, waited_ms; nil if another holder has it",
    Release 3..=5 => "LEASE.RELEASE name fence [FORCE] [DURABLE]"
        "Ends your own tenure, or with FORCE that of another: 1, or 0 if it was over already",
    Renew 4..=5 => "LEASE.RENEW name fence ttl_ms [DURABLE]"
        "Prolongs your own tenure: ttl_ms, counted from before it was sent; fence, ttl_ms if durable",
    Get 2..=2 => "LEASE.GET name"
        "The holder of a name, as a majority reported a moment ago: a hint",
    Ttl 2..=2 => "LEASE.TTL name"
        "The milliseconds that a lease lasts unless renewed, or -2 if the name is free: a hint",
    Cancel 2..=2 => "LEASE.CANCEL id"
        "Withdraws an acquire that waits with NOTIFY: 1, or 0 if none waits under that id",
    List 2..=6 => "LEASE.LIST cursor [MATCH prefix*] [COUNT count]"
        "Leases this node has seen, a page at a time from cursor 0 until it is 0 again: hints",
    Watch 2..=2 => "LEASE.WATCH prefix*"
        "Messages about leases that begin and end, until LEASE.UNWATCH: hints",
    Unwatch 1..=2 => "LEASE.UNWATCH [prefix*]"
        "Ends one watch of this connection, or all",
    Status 1..=1 => "CELL.STATUS"
        "The cell as this node sees it",
    Members 2..=MANY => "CELL.MEMBERS action [nodes] [DRYRUN] [YES]"
        "Changes the members: add ID=HOST:PORT, remove ID, replace, set, address, abort",
    Ping 1..=2 => "PING [message]"
        "Answers PONG, or the message",
    Echo 2..=2 => "ECHO message"
        "Answers the message",
    Hello 1..=8 => "HELLO [protover] [AUTH username token] [SETNAME clientname] [FOLLOW]"
        "Chooses RESP2 or RESP3, and describes the node",
    Auth 2..=3 => "AUTH [username] token"
        "Sends a token; the username is ignored",
    Client 2..=MANY => "CLIENT subcommand [value]"
        "ID, GETNAME, SETNAME name, SETINFO attribute value",
    Commands 1..=MANY => "COMMAND [subcommand] [name]"
        "The commands; also COUNT, LIST, INFO and DOCS, these of up to 14 names",
    Info 1..=MANY => "INFO [section]"
        "This node in lines of key:value",
    Select 2..=2 => "SELECT index"
        "Chooses one of 16 databases; database 3 has the names that begin with db3:",
    Reset 1..=1 => "RESET"
        "As if newly connected",
    Quit 1..=1 => "QUIT"
        "Answers what is pending, then closes the connection",
    // The Redis dialect, from here on.
    RedisSet 3..=ANY => "SET key value [options]"
        "Acquires a lease whose holder is the value: NX, XX, PX ms, EX s, KEEPTTL, GET",
    RedisGet 2..=2 => "GET key"
        "The value of a key, as a quorum has it",
    RedisEvalSha 3..=ANY => "EVALSHA sha1 numkeys [arguments]"
        "Carries out a script of a lock that this node knows",
    RedisEval 3..=ANY => "EVAL script numkeys [arguments]"
        "Carries out a script of a lock: recognised, not run",
    RedisDel 2..=ANY => "DEL key [keys]"
        "Ends leases, whatever their value",
    RedisUnlink 2..=ANY => "UNLINK key [keys]"
        "As DEL",
    RedisExists 2..=ANY => "EXISTS key [keys]"
        "How many of the keys are there",
    RedisPTtl 2..=2 => "PTTL key"
        "The milliseconds that a key lasts, -1 for ever, -2 if it is not there",
    RedisTtl 2..=2 => "TTL key"
        "The seconds that a key lasts, -1 for ever, -2 if it is not there",
    RedisPExpire 3..=4 => "PEXPIRE key ms [condition]"
        "Sets when a key ends: 1, or 0 if it is not there",
    RedisExpire 3..=4 => "EXPIRE key s [condition]"
        "Sets when a key ends: 1, or 0 if it is not there",
    RedisPersist 2..=2 => "PERSIST key"
        "Makes a key last until it is deleted",
    RedisSetNx 3..=3 => "SETNX key value"
        "Acquires a lease that lasts until it is deleted: 1, or 0 if it is held",
    RedisSetEx 4..=4 => "SETEX key s value"
        "SET with EX",
    RedisPSetEx 4..=4 => "PSETEX key ms value"
        "SET with PX",
    RedisMGet 2..=ANY => "MGET key [keys]"
        "The values of keys",
    RedisGetDel 2..=2 => "GETDEL key"
        "The value of a key, which is deleted",
    RedisType 2..=2 => "TYPE key"
        "string, or none if the key is not there",
    RedisScript 2..=ANY => "SCRIPT subcommand [arguments]"
        "LOAD, EXISTS, FLUSH: the scripts that this node knows",
    RedisBlPop 3..=ANY => "BLPOP key [keys] timeout"
        "Waits until the lock is free that a signal list belongs to",
    RedisBrPop 3..=ANY => "BRPOP key [keys] timeout"
        "As BLPOP",
    RedisSubscribe 2..=ANY => "SUBSCRIBE channel [channels]"
        "Messages that scripts publish when they release a lock",
    RedisPSubscribe 2..=ANY => "PSUBSCRIBE pattern [patterns]"
        "The same for channels that match a pattern",
    RedisUnsubscribe 1..=ANY => "UNSUBSCRIBE [channels]"
        "Ends subscriptions",
    RedisPUnsubscribe 1..=ANY => "PUNSUBSCRIBE [patterns]"
        "Ends subscriptions to patterns",
    RedisPublish 3..=3 => "PUBLISH channel message"
        "Sends a message to the subscribers of all nodes",
    RedisKeys 2..=2 => "KEYS pattern"
        "Up to 64 KiB of keys that match, as this node has seen them: hints",
    RedisScan 2..=8 => "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]"
        "Keys that match, a page at a time, as this node has seen them: hints",
    RedisDbSize 1..=1 => "DBSIZE"
        "The number of keys in the database, as this node has seen them: a hint",
    RedisConfig 2..=MANY => "CONFIG subcommand [patterns]"
        "GET: settings that drivers ask for",
    RedisFlushDb 1..=2 => "FLUSHDB [mode]"
        "Deletes the keys of the database; only with redis.testing",
    RedisFlushAll 1..=2 => "FLUSHALL [mode]"
        "Deletes all keys; only with redis.testing",
    RedisSAdd 3..=ANY => "SADD key member [members]"
        "Makes a key of another type; only with redis.testing, as the next four",
    RedisHSet 3..=ANY => "HSET key field [values]"
        "Makes a hash",
    RedisZAdd 3..=ANY => "ZADD key score [members]"
        "Makes a sorted set",
    RedisLPush 3..=ANY => "LPUSH key value [values]"
        "Makes a list",
    RedisRPush 3..=ANY => "RPUSH key value [values]"
        "Makes a list",
}

impl Spec {
    /// The command of this name, in any case. Those of the Redis dialect come last.
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        SPECS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The commands that Redis does not have, for an error.
    pub(super) fn own_names() -> String {
        let names: Vec<&str> =
            SPECS.iter().map(|spec| spec.name).filter(|name| name.contains('.')).collect();
        names.join(", ")
    }

    pub(super) fn takes(&self, args: usize) -> bool {
        self.args.contains(&args)
    }

    /// As Redis counts: exactly that many arguments, or at least that many if negative.
    fn arity(&self) -> i64 {
        let least = *self.args.start() as i64;
        if self.args.start() == self.args.end() { least } else { -least }
    }

    /// The arguments in the usage.
    fn arguments(&self) -> impl Iterator<Item = Argument> {
        let mut words = self.usage.split(' ').skip(1);
        let mut is_inside = false;
        std::iter::from_fn(move || {
            let mut word = words.next()?;
            let optional = is_inside || word.starts_with('[');
            let mut token = None;
            let bare = word.trim_matches(['[', ']']);
            if bare.bytes().all(|byte| byte.is_ascii_uppercase()) {
                token = Some(bare);
                // A token without a value is an argument by itself.
                if !word.ends_with(']') {
                    word = words.next()?;
                }
            }
            is_inside = optional && !word.ends_with(']');
            Some(Argument { name: word.trim_matches(['[', ']']), token, optional })
        })
    }

    /// The ten fields of `COMMAND INFO`, most of which are about keys.
    fn put_info(&self, out: &mut Vec<u8>) {
        let has_name = matches!(self.usage.split(' ').nth(1), Some("name" | "key"));
        put_array(out, 10);
        put_bulk(out, self.name.to_ascii_lowercase().as_bytes());
        put_integer(out, self.arity());
        put_array(out, 1);
        put_simple(out, &"fast");
        for _first_last_step in 0..3 {
            put_integer(out, i64::from(has_name));
        }
        for _categories_tips_keys_subcommands in 0..4 {
            put_array(out, 0);
        }
    }

    fn put_docs(&self, protocol: Protocol, out: &mut Vec<u8>) {
        put_bulk(out, self.name.to_ascii_lowercase().as_bytes());
        protocol.put_map(out, 3);
        put_bulk(out, b"summary");
        put_bulk(out, self.summary.as_bytes());
        put_bulk(out, b"group");
        put_bulk(out, if self.name.contains('.') { b"lease" } else { b"connection" });
        put_bulk(out, b"arguments");
        let arguments: Vec<Argument> = self.arguments().collect();
        put_array(out, arguments.len());
        for argument in arguments {
            argument.put(protocol, out);
        }
    }
}

struct Argument {
    name: &'static str,
    token: Option<&'static str>,
    optional: bool,
}

impl Argument {
    fn put(&self, protocol: Protocol, out: &mut Vec<u8>) {
        protocol.put_map(out, 2 + usize::from(self.token.is_some()) + usize::from(self.optional));
        put_bulk(out, b"name");
        put_bulk(out, self.name.as_bytes());
        put_bulk(out, b"type");
        put_bulk(out, if self.name == "name" { b"key" } else { b"string" });
        if let Some(token) = self.token {
            put_bulk(out, b"token");
            put_bulk(out, token.as_bytes());
        }
        if self.optional {
            put_bulk(out, b"flags");
            put_array(out, 1);
            put_simple(out, &"optional");
        }
    }
}

/// Replies to `COMMAND` and its subcommands. Returns `false` for an unknown subcommand.
pub(super) fn put_commands(args: &[&[u8]], protocol: Protocol, out: &mut Vec<u8>) -> bool {
    let is = |name: &str| args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let names = args.get(1..).unwrap_or_default();
    if args.is_empty() || is("INFO") && names.is_empty() {
        put_array(out, SPECS.len());
        SPECS.iter().for_each(|spec| spec.put_info(out));
    } else if is("INFO") {
        put_array(out, names.len());
        for name in names {
            match Spec::find(name) {
                Some(spec) => spec.put_info(out),
                None => protocol.put_null_array(out),
            }
        }
    } else if is("COUNT") {
        put_integer(out, SPECS.len() as i64);
    } else if is("LIST") {
        put_array(out, SPECS.len());
        SPECS.iter().for_each(|spec| put_bulk(out, spec.name.to_ascii_lowercase().as_bytes()));
    } else if is("DOCS") {
        let is_asked = |spec: &&Spec| {
            let mut names = names.iter();
            names.len() == 0 || names.any(|name| spec.name.as_bytes().eq_ignore_ascii_case(name))
        };
        protocol.put_map(out, SPECS.iter().filter(is_asked).count());
        SPECS.iter().filter(is_asked).for_each(|spec| spec.put_docs(protocol, out));
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_at_its_own_place() {
        for (place, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.command as usize, place, "{}", spec.name);
            for name in [spec.name.to_ascii_lowercase(), spec.name.to_ascii_uppercase()] {
                assert_eq!(
                    Spec::find(name.as_bytes()).map(|found| found.command),
                    Some(spec.command)
                );
            }
        }
        assert!(Spec::find(b"LEASE.ACQUIR").is_none());
        assert!(Spec::find(b"").is_none());
    }

    #[test]
    fn a_usage_tells_names_tokens_and_options_apart() {
        let shown = |command: Command| -> Vec<String> {
            let arguments = SPECS[command as usize].arguments();
            arguments
                .map(|Argument { name, token, optional }| {
                    format!("{}{name}{}", token.unwrap_or(""), if optional { "?" } else { "" })
                })
                .collect()
        };
        let options = ["HOLDERholder?", "WAITwait_ms?", "PERMITSn?", "NOTIFYid?"];
        let acquire = [&["name", "ttl_ms"], &options[..], &["DURABLEDURABLE?"]].concat();
        assert_eq!(shown(Command::Acquire), acquire);
        assert_eq!(shown(Command::Release), ["name", "fence", "FORCEFORCE?", "DURABLEDURABLE?"]);
        let hello = ["protover?", "AUTHusername?", "token?", "SETNAMEclientname?", "FOLLOWFOLLOW?"];
        assert_eq!(shown(Command::Hello), hello);
        assert_eq!(shown(Command::Quit), [""; 0]);
    }

    #[test]
    fn every_command_is_documented_as_it_is_used() {
        let native = include_str!("../../../../docs/resp.md");
        let redis = include_str!("../../../../docs/redis.md");
        for spec in &SPECS {
            let page = if spec.command.is_redis() { redis } else { native };
            assert!(page.contains(&format!("`{}`", spec.usage)), "{}", spec.usage);
        }
    }

    #[test]
    fn the_table_of_permissions_has_every_command() {
        let page = include_str!("../../../../docs/operating.md");
        let rows = page.lines().filter(|line| line.starts_with("| ")).collect::<Vec<_>>();
        for spec in SPECS.iter().filter(|spec| !spec.command.is_redis()) {
            let permission = match spec.command.requires(&[]) {
                Requirement::Name(Verb::Acquire) => "| `acquire` |",
                Requirement::Name(Verb::Read) => "| `read` |",
                Requirement::Name(Verb::Admin) => "| `admin` of the name |",
                Requirement::Cell | Requirement::Status => "| `admin` of `*` |",
                // Lists and watches show what may be read.
                Requirement::Token if matches!(spec.command, Command::List | Command::Watch) => {
                    "| `read` |"
                }
                Requirement::Token => "| any token |",
                Requirement::Nothing => "| no token |",
            };
            let short = spec.name.trim_start_matches("LEASE.");
            let names = [format!("`{}`", spec.name), format!("`{short}`")];
            let is_told = |row: &&str| names.iter().any(|name| row.contains(name));
            let row =
                rows.iter().filter(|row| row.starts_with(permission)).find(|row| is_told(row));
            assert!(row.is_some(), "{} is not in the row {permission}", spec.name);
        }
    }

    #[test]
    fn as_many_arguments_are_taken_as_the_usage_shows() {
        for spec in &SPECS {
            let words = spec.usage.split(' ').count();
            let needed = 1 + spec.arguments().filter(|argument| !argument.optional).count();
            assert!(spec.takes(needed), "{}", spec.usage);
            assert!(!spec.takes(needed - 1), "{}", spec.usage);
            assert!(spec.takes(words), "{}", spec.usage);
            assert!(*spec.args.end() >= MANY || !spec.takes(words + 1), "{}", spec.usage);
        }
    }
}
