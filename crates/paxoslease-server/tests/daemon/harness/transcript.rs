//! Conversations with daemons, written down as texts.
//!
//! A file has scenarios, each with a cell of its own. Lines are:
//!
//! ```text
//! == a title             begins a scenario
//! cell 1 SETTING ..      daemons of its cell (3 by default), and limits or other settings of them
//! a0> COMMAND            client `a` of daemon 0 sends a command
//! a0>> BYTES             client `a` of daemon 0 sends bytes
//! a0<                    the replies below are for client `a` of daemon 0
//! h0 GET /path           a request over HTTP; `h0[TOKEN]` brings a token; a body is JSON
//! web0>> BYTES           a connection for HTTP sends bytes; `web0<` as above
//! metric 0 SERIES        the value of a metric
//! audit 0                the next line of the audit log of daemon 0
//! a0? COMMAND            repeats a command until its reply is as expected; also `h0? GET /path`
//!   TEXT                 the expected reply; or status and body, a header and its value, or the
//!                        next event of a watch over HTTP
//!   (closed), (over)     the daemon closes the connection, or ends a watch over HTTP in good order
//! a0 ends, a0 leaves     client `a` closes its side of the connection, or all of it
//! wait 0 a 2             waits until 2 requests wait at daemon 0 for the lease `a`
//! wait 0 SERIES 2        waits until a metric is at least 2
//! stop 0, halt 0         stops a daemon, or only its node
//! reload 0 SETTING ..    reloads its configuration with other tokens and settings
//! check f < g            compares numbers
//! let x TEXT             from now on `<x>` stands for the text
//! ```
//!
//! A client connects when it is first mentioned. In a command, `\r` and `\n` stand for the bytes,
//! and among bytes `\xff` too, `{x*9}` for nine times `x`, `""` for an empty word, and `<a0>` for
//! the address of client `a0`.
//! In an expected text, `..` stands for any text. `<f>` stands for a word: the first time any word,
//! which has to be the same from then on. `UPDATE_TRANSCRIPTS=1` rewrites replies that differ.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use paxoslease_node::Durability;
use paxoslease_server::{Access, Config, Verb};

use super::{Cell, Client, Daemon, Raw, Reply, entry, tokens, until};

type Bound = BTreeMap<String, String>;

/// Plays the scenarios of a file in `transcripts/`.
pub(crate) fn play(file: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/transcripts");
    let path = PathBuf::from(folder).join(file);
    let text = std::fs::read_to_string(&path).expect("the transcript is there");
    let rewrites = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let (mut rewritten, mut stage, mut title) = (Vec::new(), Stage::default(), "");
    for (line, number) in text.lines().zip(1..) {
        let _place = Place(format!("{file}:{number}, {title}: {line}"));
        let mut expected = None;
        if let Some(next) = line.strip_prefix("== ") {
            (stage, title) = (Stage::default(), next);
        } else if let Some(reply) = line.strip_prefix("  ") {
            expected = Some(stage.expect(reply));
        } else if !line.is_empty() && !line.starts_with('#') {
            stage.act(line);
        }
        match expected {
            Some(Err(actual)) if rewrites => rewritten.push(format!("  {actual}")),
            Some(Err(actual)) => panic!("expected: {}\n  actual: {actual}", line.trim()),
            _ => rewritten.push(line.to_owned()),
        }
    }
    if rewrites {
        std::fs::write(path, rewritten.join("\n") + "\n").expect("written");
    }
}

/// Names the line of a transcript that failed.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// A scenario that is being played.
#[derive(Default)]
struct Stage {
    clients: BTreeMap<String, Client>,
    webs: BTreeMap<String, Web>,
    cell: Option<Cell>,
    bound: Bound,
    asked: Asked,
    /// Lines of audit logs that were compared, by daemon.
    audited: BTreeMap<usize, usize>,
}

/// What the next expected text is compared with.
#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    /// The next reply to a client.
    Resp(String),
    /// The next response on a connection for HTTP.
    Web(String),
    Http(Reply),
    Text(String),
    /// The reply to a line that is repeated until it is as expected.
    Repeated(String),
}

impl Stage {
    fn daemon(&mut self, name: &str) -> &Daemon {
        &self.cell.get_or_insert_with(Cell::three)[node(name)]
    }

    fn client(&mut self, name: &str) -> &mut Client {
        if !self.clients.contains_key(name) {
            let client = self.daemon(name).client();
            let address = client.wire.socket().local_addr().expect("connected");
            self.bound.insert(name.to_owned(), address.to_string());
            self.clients.insert(name.to_owned(), client);
        }
        self.clients.get_mut(name).expect("connected")
    }

    fn web(&mut self, name: &str) -> &mut Web {
        if !self.webs.contains_key(name) {
            let raw = Raw::connect(self.daemon(name).http());
            let address = raw.0.get_ref().socket().local_addr().expect("connected");
            self.bound.insert(name.to_owned(), address.to_string());
            self.webs.insert(name.to_owned(), Web { raw, last: None });
        }
        self.webs.get_mut(name).expect("connected")
    }

    fn act(&mut self, line: &str) {
        let line = fill(line, &self.bound);
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["cell", size, ref settings @ ..] => self.cell = Some(start(size, settings)),
            ["stop", at] => {
                let cell = self.cell.get_or_insert_with(Cell::three);
                cell.0.remove(node(at)).server.shutdown();
            }
            ["halt", at] => self.daemon(at).node().shutdown_blocking(),
            ["reload", at, ref settings @ ..] => {
                let daemon = &mut self.cell.as_mut().expect("a cell")[node(at)];
                let mut config = daemon.config.clone();
                config.access.clear();
                settings.iter().for_each(|setting| set(&mut config, setting));
                self.asked = Asked::Text(match daemon.server.reload(|| Ok(config)) {
                    Ok(done) => format!("{} tokens, restart: {}", done.access, done.needs_restart),
                    Err(refused) => refused.to_string(),
                });
            }
            ["wait", at, what, count] => {
                let (daemon, count) = (self.daemon(at), count.parse::<u32>().expect("a number"));
                if what.starts_with("paxoslease_") {
                    daemon.wait_for_metric(what, count.into());
                } else {
                    daemon.wait_for_waiters(what, count.into());
                }
            }
            ["metric", at, series] => {
                // The sum of no series is -0.
                self.asked = Asked::Text((self.daemon(at).metric(series) + 0.0).to_string());
            }
            ["audit", at] => {
                let path = self.daemon(at).config.audit.clone().expect("an audit log");
                let place = self.audited.entry(node(at)).or_default();
                *place += 1;
                self.asked = Asked::Text(line_of(&path, *place - 1));
            }
            ["check", less, "<", more] => {
                let value = |word: &str| self.bound.get(word).map_or(word, String::as_str).parse();
                let (less, more): (u64, u64) =
                    (value(less).expect("a number"), value(more).expect("a number"));
                assert!(less < more, "{line}: {less} < {more}");
            }
            ["let", name, ref text @ ..] => {
                self.bound.insert(name.to_owned(), text.join(" "));
            }
            [name, "ends"] => self.client(name).wire.end(),
            [name, "leaves"] => drop((self.clients.remove(name), self.webs.remove(name))),
            [name, ..] if name.ends_with('?') => {
                self.asked = Asked::Repeated(line.replacen("? ", " ", 1));
            }
            [name, method, path, ref body @ ..] if is_http(name) => {
                self.asked = Asked::Http(self.request(name, method, path, &body.join(" ")));
            }
            [name, ref command @ ..] => self.speak(name, &unescape(&command.join(" "))),
            [] => {}
        }
    }

    fn speak(&mut self, who: &str, what: &str) {
        let name = who.trim_end_matches(['>', '<']).to_owned();
        let is_web = name.starts_with("web");
        match &who[name.len()..] {
            ">" => self.client(&name).send(what),
            ">>" if is_web => assert!(self.web(&name).raw.0.get_mut().send(&bytes(what)), "sent"),
            ">>" => self.client(&name).send_bytes(&bytes(what)),
            "<" => {}
            _ => panic!("unknown line: {who} {what}"),
        }
        self.asked = if is_web { Asked::Web(name) } else { Asked::Resp(name) };
    }

    fn request(&mut self, who: &str, method: &str, path: &str, body: &str) -> Reply {
        let (who, token) = who.split_once('[').unwrap_or((who, ""));
        let token = token.strip_suffix(']');
        let body = match unescape(body).as_str() {
            "" => None,
            "\"\"" => Some(String::new()),
            body => Some(body.to_owned()),
        };
        let body = body.as_deref().map(|body| ("application/json", body));
        self.daemon(who).ask(method, &unescape(path), token, body)
    }

    /// Compares the next reply. An error is the reply as it should be written.
    fn expect(&mut self, expected: &str) -> Result<(), String> {
        let actual = match &self.asked {
            Asked::Nothing => panic!("nothing was asked before {expected:?}"),
            Asked::Resp(name) => match self.client(&name.clone()).try_next() {
                Ok(reply) => escape(&reply),
                Err(error) if is_close(&error) => "(closed)".to_owned(),
                Err(error) => panic!("no reply for {expected:?}: {error}"),
            },
            Asked::Web(name) => self.web(&name.clone()).next(expected),
            Asked::Http(reply) => shown(reply, expected),
            Asked::Text(text) => text.clone(),
            Asked::Repeated(line) => {
                let line = line.clone();
                until(&format!("the reply to {line} is {expected}"), || {
                    self.repeat(&line);
                    self.expect(expected).is_ok()
                });
                return Ok(());
            }
        };
        if matches(expected, &actual, &mut self.bound) {
            return Ok(());
        }
        let is_fence = |value: &str| value.len() > 8;
        let fences = self.bound.iter().filter(|(_, value)| is_fence(value));
        Err(fences.fold(actual, |shown, (name, value)| shown.replace(value, &format!("<{name}>"))))
    }

    fn repeat(&mut self, line: &str) {
        let (who, what) = line.split_once(' ').expect("a command");
        self.act(&if is_http(who) { line.to_owned() } else { format!("{who}> {what}") });
    }
}

/// A connection for HTTP, and the last response on it.
struct Web {
    raw: Raw,
    last: Option<Reply>,
}

impl Web {
    /// The next response or event; or a header of the last response, if one is expected.
    fn next(&mut self, expected: &str) -> String {
        match &self.last {
            Some(last) if header(expected).is_some() => return shown(last, expected),
            Some(last) if last.header("content-type") == "text/event-stream" => {
                let event = self.raw.event();
                return event.map_or("(over)".into(), |(kind, data)| format!("{kind} {data}"));
            }
            _ if self.raw.is_closed() => return "(closed)".to_owned(),
            _ => {}
        }
        shown(self.last.insert(self.raw.reply()), expected)
    }
}

fn is_http(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next() == Some('h') && letters.next().is_some_and(|letter| letter.is_ascii_digit())
}

fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// The number of a daemon, at the end of a client's name.
fn node(name: &str) -> usize {
    let digit = name.chars().last().and_then(|digit| digit.to_digit(10));
    digit.unwrap_or_else(|| panic!("{name} does not end with the number of a daemon")) as usize
}

/// Starts a cell of this size, or `1of3`, with limits and the settings below.
fn start(size: &str, settings: &[&str]) -> Cell {
    let running = if size == "1of3" { 1 } else { node(size) as u16 };
    Cell::start(node(size), running, |config| {
        settings.iter().for_each(|setting| set(config, setting));
    })
}

fn set(config: &mut Config, setting: &str) {
    match setting {
        "tokens" => config.access = tokens(),
        "redis.testing" => config.redis.testing = true,
        "redis.disabled" => config.redis.enabled = false,
        "volatile" => config.node.durable_leases = Durability::Volatile,
        "refuse" => config.node.durable_leases = Durability::Refused,
        "peers_out_of_reach" => config.listen.peers_out_of_reach = true,
        "shards=1" => config.node.shards = 1,
        "audit" => config.audit = Some(new_path("audit")),
        "persistent" => config.node.ephemeral = false,
        "impatient" => config.node.timing.request_timeout = Duration::from_millis(50),
        "drift" => {
            config.node.clock_drift_ppm = 200;
            config.node.clock_granularity = Duration::from_nanos(2_000_001);
        }
        "everywhere" => {
            config.listen.http = Some("0.0.0.0:0".to_owned());
            config.node.listen.allow_plaintext = true;
        }
        limit => match limit.strip_prefix("token=") {
            Some(token) => config.access.push(access(token)),
            None => config.set_limit(limit).expect("a limit"),
        },
    }
}

/// A new path, where nothing is.
pub(crate) fn new_path(what: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = format!("{what}-{}-{}", number.0, number.1);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(path);
    // An earlier process may have had this id.
    let _none = std::fs::remove_dir_all(&path);
    path
}

/// A line of a file, once it is there.
pub(crate) fn line_of(path: &Path, place: usize) -> String {
    let mut found = None;
    until(&format!("line {place} of {}", path.display()), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').nth(place).filter(|line| line.ends_with('\n'));
        found = whole.map(|line| line.trim_end().to_owned());
        found.is_some()
    });
    found.expect("found")
}

/// A token as `name:patterns:verbs`, maybe with `:leases`; patterns and verbs with commas.
fn access(text: &str) -> Access {
    let mut parts = text.split(':').map(|part| part.split(',').collect::<Vec<_>>());
    let mut next = || parts.next().unwrap_or_default();
    let (name, names, may, leases) = (next(), next(), next(), next());
    let may: Vec<Verb> = may.iter().map(|verb| verb.parse().expect("a verb")).collect();
    let mut entry = entry(name[0], &names, &may);
    entry.leases = leases.first().map(|most| most.parse().expect("a number"));
    entry
}

/// The name of a header, if one is expected.
fn header(expected: &str) -> Option<&str> {
    let (name, _) = expected.split_once(": ")?;
    (!name.contains(' ')).then_some(name)
}

/// Status and body, or a header if one is expected.
fn shown(reply: &Reply, expected: &str) -> String {
    match header(expected) {
        None => format!("{} {}", reply.status, reply.text),
        Some(name) => {
            let values = reply.headers.get_all(name).iter();
            let values: Vec<_> = values.map(|value| value.to_str().expect("ASCII")).collect();
            let values = if values.is_empty() { "(none)".to_owned() } else { values.join(", ") };
            format!("{name}: {values}")
        }
    }
}

/// Puts the values of variables into a line.
fn fill(line: &str, bound: &Bound) -> String {
    bound
        .iter()
        .fold(line.to_owned(), |line, (name, value)| line.replace(&format!("<{name}>"), value))
}

fn escape(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

/// A text in which `\xff` stands for a byte.
fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let first = parts.next().unwrap_or_default().as_bytes().to_vec();
    parts.fold(first, |mut bytes, part| {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
        bytes
    })
}

/// Line ends, and repeated characters.
fn unescape(text: &str) -> String {
    let text = text.replace("\\r", "\r").replace("\\n", "\n");
    let repeated = text.split_once('{').and_then(|(before, rest)| {
        let (inner, after) = rest.split_once('}')?;
        let (what, times) = inner.split_once('*').filter(|(what, _)| what.len() == 1)?;
        Some(format!("{before}{}{}", what.repeat(times.parse().ok()?), unescape(after)))
    });
    let nested = || {
        let (before, rest) = text.split_once('{')?;
        Some(format!("{before}{{{}", unescape(rest)))
    };
    repeated.or_else(nested).unwrap_or_else(|| text.clone())
}

/// Whether a text is as the pattern says. If so, remembers its words.
fn matches(pattern: &str, text: &str, bound: &mut Bound) -> bool {
    if let Some(rest) = pattern.strip_prefix("..") {
        let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        return starts.any(|at| matches(rest, &text[at..], bound));
    }
    let word = pattern.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    if let Some((name, rest)) = word {
        let end = text.find([' ', '"', ']', '}', ',']).unwrap_or(text.len());
        let known = bound.get(name).cloned().unwrap_or_else(|| text[..end].to_owned());
        let is_match = text.strip_prefix(&known).is_some_and(|text| matches(rest, text, bound));
        if is_match {
            bound.insert(name.to_owned(), known);
        }
        return is_match;
    }
    let (mut expected, mut actual) = (pattern.chars(), text.chars());
    match (expected.next(), actual.next()) {
        (None, None) => true,
        (Some(one), Some(other)) if one == other => {
            matches(expected.as_str(), actual.as_str(), bound)
        }
        _ => false,
    }
}
