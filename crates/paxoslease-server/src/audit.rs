//! The audit log: one line of JSON for each lease that a client acquired, released or lost, for
//! changes of the members, and for clients that were refused.
//!
//! A thread of its own writes the file. The threads that serve clients put entries into a bounded
//! queue and never wait: an entry that finds the queue full is dropped and counted. The file is
//! bounded too: when it is full, it becomes `<path>.1`, and the one before `<path>.2`, up to a
//! number. Refusals could be as many as a client sends commands, and must not push other lines out
//! of the files: those of one token share a line every ten seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use metrics::counter;
use paxoslease_node::front::{Answer, Instant, LogThrottle};
use paxoslease_node::{MembersError, MembersRequest};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::access::Denied;
use crate::config::{ServerLimits, TokenHash};
use crate::metrics::Metrics;
use crate::text::is_hidden;

/// Entries that wait for the writer.
const QUEUE_MAX: usize = 8192;
/// Bytes that are written at once.
const BATCH_MAX: usize = 64 * 1024;
/// How long a daemon that stops waits for the last lines: the disk may hang.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const DROPPED: &str = "paxoslease_audit_dropped_total";

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A client was told that it holds a lease.
    #[default]
    Granted,
    /// A client released a lease.
    Released,
    /// An operator released a lease by force, or tried to.
    ForceReleased,
    /// A client was told, when it renewed, that its lease is over.
    Lost,
    /// A lease ran out, as this node's acceptor saw it.
    Expired,
    /// An administrator changed the members, or tried to.
    Members,
    /// A client has no valid token, or not the permission.
    Refused,
}

/// One line. Its time and node are added when it is put into the queue.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// As text, because it exceeds the precision of JSON numbers.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub(crate) fence: Option<u64>,
    /// The name of the token in `[[access]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// The address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// The change of the members, such as `replace 3 4=10.0.0.4:7401`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<String>,
    /// The epoch that a change of the members led to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u32>,
    /// Why a client was refused, or how a release or a change ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<&'static str>,
    /// How many refusals this line stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
}

fn as_text<S: serde::Serializer>(fence: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&fence.unwrap_or_default())
}

impl Entry {
    /// An event of a client's lease.
    pub(crate) fn of(event: Event, name: &str, fence: Option<u64>) -> Self {
        Self { event, name: Some(name.to_owned()), fence, ..Self::default() }
    }

    /// A change of the members. `None` if it is only to be checked.
    pub(crate) fn of_members(request: &MembersRequest) -> Option<Self> {
        let (action, nodes) = request.change.words();
        let change = std::iter::once(action).chain(nodes.iter().map(String::as_str));
        let change = Some(change.collect::<Vec<_>>().join(" "));
        (!request.dry_run).then(|| Self { event: Event::Members, change, ..Self::default() })
    }

    pub(crate) fn by(self, client: impl fmt::Display, token: Option<String>) -> Self {
        Self { client: Some(client.to_string()), token, ..self }
    }

    /// A client was refused, and `count` times since the last line.
    fn refused(denied: &Denied, client: impl fmt::Display, count: u64) -> Self {
        let (token, name) = match denied {
            Denied::NoToken | Denied::UnknownToken => (None, None),
            Denied::NotPermitted { bearer, name, .. } => (bearer.clone(), name.clone()),
        };
        let result = Some(Denied::REASONS[denied.reason()]);
        let count = (count > 1).then_some(count);
        let (event, client) = (Event::Refused, Some(client.to_string()));
        Self { event, name, token, client, result, count, ..Self::default() }
    }

    /// Its memory in bytes.
    pub(crate) fn cost(&self) -> usize {
        let texts = [&self.name, &self.holder, &self.token, &self.client, &self.change];
        size_of::<Self>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// How a release ended. `None` if there is nothing to tell: it released nothing.
    pub(crate) fn released(mut self, held: bool, confirmed: bool) -> Option<Self> {
        self.result = Some(match (held, confirmed) {
            (_, false) => "unconfirmed",
            (true, true) => "confirmed",
            (false, true) => "not_held",
        });
        (held || !confirmed || self.event == Event::ForceReleased).then_some(self)
    }
}

#[derive(Serialize)]
struct Line {
    time: String,
    node: u16,
    #[serde(flatten)]
    entry: Entry,
}

enum Message {
    Line(SystemTime, Entry),
    Reopen,
    /// The writer ends, and then drops this.
    Stop(SyncSender<()>),
}

/// Where entries go; nowhere by default. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Audit {
    queue: Option<SyncSender<Message>>,
    refusals: Refusals,
}

/// By token; `None` for all clients without a known one. There are as many as `[[access]]` has had
/// tokens since the start.
type Refusals = Arc<Mutex<BTreeMap<Option<TokenHash>, LogThrottle>>>;

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Audit({})", if self.is_on() { "on" } else { "off" })
    }
}

impl Audit {
    /// Opens the file of a node, and starts the thread that writes it.
    pub(crate) fn start(
        path: &Path,
        limits: &ServerLimits,
        node: u16,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let writer = Writer::open(path.to_owned(), limits, node)?;
        let (sender, queue) = sync_channel(QUEUE_MAX);
        let recorder = metrics.recorder();
        let run = move || {
            ::metrics::with_local_recorder(&*recorder, || writer.run(&queue));
        };
        thread::Builder::new().name("paxoslease-audit".to_owned()).spawn(run)?;
        Ok(Self { queue: Some(sender), refusals: Refusals::default() })
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// A client was refused. Puts an entry into the queue, unless its token had one lately.
    pub(crate) fn refused(&self, denied: &Denied, client: impl fmt::Display, now: Instant) {
        if !self.is_on() {
            return;
        }
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let due = refusals.entry(denied.token()).or_default().again(now);
        drop(refusals);
        if let Some(count) = due {
            self.put(Entry::refused(denied, client, count));
        }
    }

    /// Puts an entry into the queue. Never waits.
    #[expect(clippy::disallowed_methods, reason = "a wall time for people; nothing depends on it")]
    pub(crate) fn put(&self, entry: Entry) {
        if let Some(sender) = &self.queue
            && sender.try_send(Message::Line(SystemTime::now(), entry)).is_err()
        {
            counter!(DROPPED).increment(1);
        }
    }

    /// A request was answered. Puts its entry into the queue if it says what happened. Returns the
    /// entry of a grant, which the client has not got yet, or of an acquire that is tried again.
    pub(crate) fn answered(&self, mut entry: Box<Entry>, answer: &Answer) -> Option<Box<Entry>> {
        match (entry.event, answer) {
            (Event::Granted, answer) => {
                if let Answer::Granted { tenure, .. } = answer {
                    entry.fence = Some(tenure.fence());
                }
                return Some(entry);
            }
            (Event::Lost, Answer::NotHeld) => self.put(*entry),
            (Event::Members, Answer::Members(outcome)) => {
                let (result, epoch) = match &**outcome {
                    Ok(plan) => ("decided", plan.decided),
                    Err(MembersError::Unconfirmed(_)) => ("unconfirmed", None),
                    Err(MembersError::NoQuorum(_)) => ("no_quorum", None),
                    Err(_) => ("refused", None),
                };
                (entry.result, entry.epoch) = (Some(result), epoch);
                self.put(*entry);
            }
            (_, Answer::Released { held, confirmed }) => {
                entry.released(*held, *confirmed).into_iter().for_each(|entry| self.put(entry));
            }
            (_, Answer::Doubtful) => {
                entry.result = Some("unknown");
                self.put(*entry);
            }
            _ => {}
        }
        None
    }

    /// Has the file opened anew, since another program may have renamed it.
    pub(crate) fn reopen(&self) {
        if let Some(sender) = &self.queue {
            // If the queue is full, the disk is behind. The operator repeats the signal.
            let _full = sender.try_send(Message::Reopen);
        }
    }

    /// Writes the last entries and ends the writer, if that does not take long.
    pub(crate) fn stop(&self) {
        if let Some(sender) = &self.queue {
            let (done, ended) = sync_channel(0);
            if sender.try_send(Message::Stop(done)).is_ok() {
                let _ended_or_hangs = ended.recv_timeout(STOP_TIMEOUT);
            }
        }
    }
}

/// Compact JSON in which characters that a terminal would obey or hide are escaped.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(hidden) = rest.find(is_hidden) {
            writer.write_all(&rest.as_bytes()[..hidden])?;
            let mut chars = rest[hidden..].chars();
            let mut units = [0; 2];
            for unit in chars.next().unwrap_or_default().encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

struct Writer {
    path: PathBuf,
    bytes_max: u64,
    /// How many full files are kept.
    kept_max: u8,
    node: u16,
    file: File,
    /// The length of the file.
    len: u64,
    /// Lines that are not written yet, and their number.
    batch: Vec<u8>,
    batched: u64,
    is_failing: bool,
}

impl Writer {
    fn open(path: PathBuf, limits: &ServerLimits, node: u16) -> io::Result<Self> {
        let (file, len) = open(&path)?;
        Ok(Self {
            path,
            bytes_max: limits.audit_bytes,
            kept_max: limits.audit_files,
            node,
            file,
            len,
            batch: Vec::new(),
            batched: 0,
            is_failing: false,
        })
    }

    fn run(mut self, queue: &Receiver<Message>) {
        counter!(DROPPED).increment(0);
        let mut next = queue.recv().ok();
        while let Some(message) = next {
            let mut last = None;
            match message {
                Message::Line(at, entry) => self.add(at, entry),
                Message::Reopen => self.reopen(),
                Message::Stop(done) => last = Some(done),
            }
            next = if last.is_some() { None } else { queue.try_recv().ok() };
            if next.is_none() {
                self.flush();
                // The queue is empty, or it is all over.
                next = if last.is_some() { None } else { queue.recv().ok() };
            }
        }
    }

    fn add(&mut self, at: SystemTime, entry: Entry) {
        let time = OffsetDateTime::from(at).format(&Rfc3339).unwrap_or_default();
        let line = Line { time, node: self.node, entry };
        let begin = self.batch.len();
        let mut serializer = Serializer::with_formatter(&mut self.batch, Visible);
        if line.serialize(&mut serializer).is_err() {
            self.batch.truncate(begin);
            return counter!(DROPPED).increment(1);
        }
        self.batch.push(b'\n');
        self.batched += 1;
        if self.len + self.batch.len() as u64 > self.bytes_max || self.batch.len() > BATCH_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let written = self.write();
        let (lines, path) = (std::mem::take(&mut self.batched), self.path.display());
        match written {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                counter!(DROPPED).increment(lines);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%path, %error, "the audit log cannot be written: lines are lost");
                }
            }
        }
        self.batch.clear();
    }

    fn write(&mut self) -> io::Result<()> {
        if self.len > 0 && self.len + self.batch.len() as u64 > self.bytes_max {
            for number in (1..self.kept_max).rev() {
                // A number may be missing, since other programs may take files away.
                let _missing = fs::rename(self.kept(number), self.kept(number + 1));
            }
            fs::rename(&self.path, self.kept(1))?;
            (self.file, self.len) = open(&self.path)?;
        }
        self.file.write_all(&self.batch)?;
        self.len += self.batch.len() as u64;
        Ok(())
    }

    /// The path of a full file; the newest has number 1.
    fn kept(&self, number: u8) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    fn reopen(&mut self) {
        self.flush();
        match open(&self.path) {
            Ok((file, len)) => (self.file, self.len) = (file, len),
            Err(error) => {
                let path = self.path.display();
                tracing::error!(%path, %error, "the audit log cannot be opened again: it stays open");
            }
        }
    }
}

/// The file, for its owner and group, and its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    let len = file.metadata()?.len();
    Ok((file, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("paxoslease-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn writer(path: &Path, audit_files: u8) -> Writer {
        let limits = ServerLimits { audit_bytes: 1000, audit_files, ..ServerLimits::default() };
        Writer::open(path.to_owned(), &limits, 7).expect("opens")
    }

    fn entry(name: &str) -> Entry {
        Entry::of(Event::Granted, name, Some(u64::MAX >> 1)).by("127.0.0.1:9", None)
    }

    #[test]
    fn a_line_has_time_node_and_what_is_known() {
        let path = folder("audit-line").join("audit");
        let mut writer = writer(&path, 1);
        writer.add(SystemTime::UNIX_EPOCH, entry("a\n\"b"));
        writer.flush();
        let line = "{\"time\":\"1970-01-01T00:00:00Z\",\"node\":7,\"event\":\"granted\",\
                    \"name\":\"a\\n\\\"b\",\"fence\":\"9223372036854775807\",\
                    \"client\":\"127.0.0.1:9\"}\n";
        assert_eq!(fs::read_to_string(&path).expect("written"), line);
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }

    #[test]
    fn characters_that_a_terminal_would_obey_or_hide_are_escaped() {
        let path = folder("audit-hidden").join("audit");
        let mut writer = writer(&path, 1);
        let name = "a\u{1b}[2J\u{7f}\u{9b}\u{202e}é\u{e0041}";
        writer.add(SystemTime::UNIX_EPOCH, entry(name));
        writer.flush();
        let line = fs::read_to_string(&path).expect("written");
        let shown = "\"name\":\"a\\u001b[2J\\u007f\\u009b\\u202eé\\udb40\\udc41\"";
        assert!(line.contains(shown), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["name"], name);
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }

    #[test]
    fn full_files_are_kept_up_to_a_number_and_within_the_bound() {
        let path = folder("audit-full").join("audit");
        let mut writer = writer(&path, 3);
        for number in 0..100 {
            writer.add(SystemTime::UNIX_EPOCH, entry(&number.to_string()));
            writer.flush();
        }
        let read = |name: &str| fs::read_to_string(path.with_file_name(name)).expect("written");
        let files = ["audit.3", "audit.2", "audit.1", "audit"].map(read);
        assert!(files.iter().all(|file| file.len() <= 1000));
        assert!(files[..3].iter().all(|file| file.len() > 800));
        // Together they are the end of the log, without a gap.
        let lines = files.concat();
        let kept = lines.lines().count();
        for (line, number) in lines.lines().zip(100 - kept..) {
            assert!(line.contains(&format!("\"name\":\"{number}\"")), "{line}");
        }
        let folder = path.parent().expect("a folder");
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 4);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_log_that_cannot_keep_up_drops_entries_and_never_waits() {
        let metrics = Metrics::new();
        let (sender, queue) = sync_channel(2);
        let audit = Audit { queue: Some(sender), refusals: Refusals::default() };
        ::metrics::with_local_recorder(&*metrics.recorder(), || {
            (0..5).for_each(|_| audit.put(entry("a")));
        });
        assert_eq!(queue.try_iter().count(), 2);
        assert!(metrics.render().contains("paxoslease_audit_dropped_total 3"));
    }

    #[test]
    fn a_release_that_released_nothing_is_told_only_of_an_operator() {
        let released = |event, held, confirmed| {
            let entry = Entry::of(event, "a", Some(1)).released(held, confirmed);
            entry.and_then(|entry| entry.result)
        };
        assert_eq!(released(Event::Released, true, true), Some("confirmed"));
        assert_eq!(released(Event::Released, false, true), None);
        assert_eq!(released(Event::Released, false, false), Some("unconfirmed"));
        assert_eq!(released(Event::ForceReleased, false, true), Some("not_held"));
    }
}
