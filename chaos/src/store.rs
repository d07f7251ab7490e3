//! A fenced store: accepts a write only with a fence that is at least the highest accepted one of
//! the same name, and logs every verdict.
//!
//! It has a Unix socket, which works in every network namespace, also behind a partition. A request
//! is one line of JSON, an answer one character. Verdict and log line are one step, so that the log
//! has the order of the verdicts.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, thread};

use serde::{Deserialize, Serialize};

use crate::log::{EXTENSION, EventKind, Log};

const SOCKET: &str = "store.sock";

/// The longest request.
const LINE_MAX: u64 = 4096;

/// The socket of the store of a run with logs in this folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// The store. On drop it removes its socket, but goes on serving connected clients.
#[derive(Debug)]
pub struct Store {
    socket: PathBuf,
}

#[derive(Debug)]
struct State {
    highest: BTreeMap<String, u64>,
    log: Log,
}

#[derive(Serialize, Deserialize)]
struct Question {
    client: String,
    name: String,
    fence: u64,
}

impl Store {
    /// Starts a thread that serves, with socket and log in this folder.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let socket = socket(folder);
        let listener = UnixListener::bind(&socket)?;
        let log = Log::create(&folder.join("store").with_extension(EXTENSION))?;
        let state = Arc::new(Mutex::new(State { highest: BTreeMap::new(), log }));
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                let serve = move || {
                    if let Err(error) = serve(&stream, &state) {
                        eprintln!("the fenced store: {error}");
                    }
                };
                if thread::Builder::new().name("store".to_owned()).spawn(serve).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("store".to_owned()).spawn(accept)?;
        Ok(Self { socket })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.socket);
    }
}

fn serve(stream: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) if !line.ends_with(b"\n") => return Ok(()),
            Ok(_) => {}
        }
        let question: Question = serde_json::from_slice(&line)?;
        let accepted = state.lock().unwrap_or_else(PoisonError::into_inner).judge(question)?;
        if (&*stream).write_all(if accepted { b"1" } else { b"0" }).is_err() {
            return Ok(());
        }
    }
}

impl State {
    fn judge(&mut self, Question { client, name, fence }: Question) -> io::Result<bool> {
        let highest = self.highest.get(&name).copied().unwrap_or(0);
        let accepted = fence >= highest;
        if accepted {
            self.highest.insert(name.clone(), fence);
        }
        self.log.write(EventKind::Write { client, name, fence, accepted, highest })?;
        Ok(accepted)
    }
}

#[derive(Debug)]
pub struct Writer {
    stream: UnixStream,
    client: String,
}

impl Writer {
    pub fn connect(socket: &Path, client: &str) -> io::Result<Self> {
        Ok(Self { stream: UnixStream::connect(socket)?, client: client.to_owned() })
    }

    /// Writes under a fence, and returns whether the store accepted it.
    pub fn write(&mut self, name: &str, fence: u64) -> io::Result<bool> {
        let question = Question { client: self.client.clone(), name: name.to_owned(), fence };
        let mut line = serde_json::to_vec(&question)?;
        line.push(b'\n');
        self.stream.write_all(&line)?;
        let mut verdict = [0];
        self.stream.read_exact(&mut verdict)?;
        Ok(verdict == *b"1")
    }
}

#[cfg(test)]
mod tests {
    use paxoslease_rig::Folder;

    use super::*;
    use crate::log;

    #[test]
    fn a_lower_fence_is_refused_per_name_and_all_is_logged() {
        let folder = Folder::new("store").expect("a folder");
        let store = Store::start(folder.path()).expect("a store");
        let mut x = Writer::connect(&socket(folder.path()), "x").expect("connected");
        let mut y = Writer::connect(&socket(folder.path()), "y").expect("connected");
        assert!(x.write("a", 5).expect("an answer"));
        assert!(x.write("a", 5).expect("an answer"));
        assert!(y.write("a", 7).expect("an answer"));
        assert!(!x.write("a", 5).expect("an answer"));
        assert!(x.write("b", 5).expect("an answer"), "another name");
        drop(store);
        let events = log::read(folder.path()).expect("a log").events;
        let verdicts: Vec<(u64, bool, u64)> = events
            .iter()
            .filter_map(|event| match event.what {
                EventKind::Write { fence, accepted, highest, .. } => {
                    Some((fence, accepted, highest))
                }
                _ => None,
            })
            .collect();
        let expected = [(5, true, 0), (5, true, 5), (7, true, 5), (5, false, 7), (5, true, 0)];
        assert_eq!(verdicts, expected);
    }
}
