//! The keys of one operation: what is known of their leases, and what the operation makes of them.
//!
//! An operation is evaluated against this snapshot, as often as it takes to learn the keys that it
//! needs. The difference between what is known and what the evaluation left is what must happen to
//! the leases. Nothing here talks to a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paxoslease_node::TextError;
use paxoslease_node::front::{Holder, Instant, Lasts, Name, Sighting};

/// Databases 1 to 15 are name spaces: the lease of key `k` in database 3 is `db3:k`.
pub(super) const DATABASES: u8 = 16;

/// The most keys of a command, and of a script.
const KEYS_MAX: usize = 256;
pub(super) const SCRIPT_KEYS_MAX: usize = 64;

/// The most messages that a script publishes.
const PUBLISHED_MAX: usize = 16;

/// The lease of a key.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) fence: u64,
    pub(super) value: Vec<u8>,
    /// [`Instant::MAX`] for never, as everywhere in the dialect.
    pub(super) ends_at: Instant,
    /// Whether it is on disk, so that only the disk has its end.
    pub(super) is_durable: bool,
}

impl Stored {
    /// `durable` is how long a durable lease lasts.
    pub(super) fn of(seen: &Sighting, durable: Option<Lasts>, now: Instant) -> Self {
        let ends_at = || now.after(seen.remaining.as_duration());
        Self {
            fence: seen.tenure.fence(),
            value: seen.label.holder().as_bytes().to_vec(),
            ends_at: durable.map_or_else(ends_at, |lasts| lasts.ends_at(now)),
            is_durable: durable.is_some(),
        }
    }
}

/// How far the knowledge of a key may be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Assumed, or known by this node alone. Good enough for a change that a quorum confirms.
    Hint,
    /// Reported by a quorum during this operation.
    Quorum,
    /// The change that follows from it was made.
    Applied,
}

#[derive(Clone, Debug)]
struct Known {
    stored: Option<Stored>,
    trust: Trust,
}

/// A key during one evaluation.
#[derive(Clone, Debug)]
pub(super) enum State {
    Absent,
    Value {
        bytes: Vec<u8>,
        ends_at: Instant,
        is_end_set: bool,
    },
    /// A list that a release script pushes a signal to. Signals are not kept.
    Signal,
}

pub(super) struct Key {
    /// The name of its lease.
    pub(super) name: String,
    known: Option<Known>,
    state: State,
    is_read: bool,
    /// Whether the evaluation looked at when it ends.
    is_end_read: bool,
    /// Whether the operation needs to know it. Some libraries pass other things as keys.
    is_wanted: bool,
}

/// What must happen to the lease of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Acquire {
        value: Vec<u8>,
        ends_at: Instant,
    },
    Release {
        fence: u64,
        is_durable: bool,
    },
    /// The tenure goes on and ends then. `is_longer` if a plain renewal can do that.
    SetEnd {
        fence: u64,
        value: Vec<u8>,
        ends_at: Instant,
        is_longer: bool,
    },
    /// In test suites only: the tenure ends and another one with another value begins.
    Replace {
        fence: u64,
        is_durable: bool,
        value: Vec<u8>,
        ends_at: Instant,
    },
}

/// The error that a command replies.
pub(super) struct Stop(pub(super) String);

/// The keys, and what the current evaluation has published.
pub(in super::super) struct Keys {
    /// The database of the connection.
    own_database: u8,
    /// The database of the keys that follow: a script may choose another.
    pub(super) database: u8,
    pub(super) now: Instant,
    pub(super) keys: Vec<Key>,
    /// The place of each of them by the name of its lease.
    places: BTreeMap<Vec<u8>, usize>,
    /// Channels and messages.
    pub(super) published: Vec<(Vec<u8>, Vec<u8>)>,
    /// The key that a SET with NX found to be held.
    pub(super) denied: Option<Vec<u8>>,
    /// The keys that a script lists, with their pattern.
    pub(super) listed: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    /// Whether commands for test suites are permitted.
    pub(super) is_testing: bool,
    /// Whether a script is evaluated, whose lists are signals.
    pub(super) is_script: bool,
    /// The most keys.
    pub(super) max: usize,
}

impl Keys {
    pub(super) const fn new(database: u8, is_testing: bool) -> Self {
        Self {
            own_database: database,
            database,
            now: Instant::ZERO,
            keys: Vec::new(),
            places: BTreeMap::new(),
            published: Vec::new(),
            denied: None,
            listed: None,
            is_testing,
            is_script: false,
            max: KEYS_MAX,
        }
    }

    /// Whether a script has chosen no other database.
    pub(super) fn is_own_database(&self) -> bool {
        self.database == self.own_database
    }

    /// The place of a key, which is added if it is new.
    pub(super) fn place(&mut self, key: &[u8]) -> Result<usize, Stop> {
        let place = match self.database {
            0 => self.places.get(key),
            database => self.places.get(&[prefix(database).as_bytes(), key].concat()),
        };
        if let Some(place) = place {
            return Ok(*place);
        }
        if self.keys.len() == self.max {
            return Err(Stop(format!("ERR more than {} keys in one command", self.max)));
        }
        let name = lease_name(self.database, key)
            .map_err(|error| Stop(format!("NAME a key here is the name of a lease: {error}")))?;
        self.places.insert(name.as_bytes().to_vec(), self.keys.len());
        self.keys.push(Key {
            name,
            known: None,
            state: State::Absent,
            is_read: false,
            is_end_read: false,
            is_wanted: false,
        });
        Ok(self.keys.len() - 1)
    }

    /// Adds a key that the operation needs to know.
    pub(super) fn want(&mut self, key: &[u8]) -> Result<(), Stop> {
        let place = self.place(key)?;
        self.keys[place].is_wanted = true;
        Ok(())
    }

    /// Begins an evaluation.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.now, self.database) = (now, self.own_database);
        self.published.clear();
        self.denied = None;
        for key in &mut self.keys {
            (key.is_read, key.is_end_read) = (false, false);
            key.state = match key.known.as_ref().and_then(|known| known.stored.as_ref()) {
                None => State::Absent,
                Some(Stored { value, ends_at, .. }) => {
                    State::Value { bytes: value.clone(), ends_at: *ends_at, is_end_set: false }
                }
            };
        }
    }

    /// Sets what is known of a key.
    pub(super) fn learn(&mut self, place: usize, stored: Option<Stored>, trust: Trust) {
        self.keys[place].known = Some(Known { stored, trust });
    }

    pub(super) fn forget(&mut self, place: usize) {
        self.keys[place].known = None;
    }

    /// The change of a key was made.
    pub(super) fn applied(&mut self, place: usize) {
        if let Some(known) = &mut self.keys[place].known {
            known.trust = Trust::Applied;
        }
    }

    /// The state of a key, which counts as read. A key that is not known passes for absent, so that
    /// the evaluation finds what else it needs. Its result does not count then.
    pub(super) fn read(&mut self, key: &[u8]) -> Result<&mut State, Stop> {
        let place = self.place(key)?;
        let key = &mut self.keys[place];
        (key.is_read, key.is_wanted) = (true, true);
        Ok(&mut key.state)
    }

    /// The same as [`Self::read`], of a command that depends on when the key ends.
    pub(super) fn read_end(&mut self, key: &[u8]) -> Result<&mut State, Stop> {
        let place = self.place(key)?;
        self.keys[place].is_end_read = true;
        self.read(key)
    }

    /// A script publishes. Messages that a note cannot carry are lost, as any message may be.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> Result<(), Stop> {
        if self.published.len() == PUBLISHED_MAX {
            let text = format!("ERR a script publishes at most {PUBLISHED_MAX} messages");
            return Err(Stop(text));
        }
        if Name::from_bytes(channel).is_ok() && Holder::from_bytes(message).is_ok() {
            self.published.push((channel.to_vec(), message.to_vec()));
        }
        Ok(())
    }

    /// A signal list is not read from the cell: what is in it matters to no command.
    pub(super) fn signal(&mut self, key: &[u8]) -> Result<(), Stop> {
        let place = self.place(key)?;
        match self.keys[place].state {
            State::Value { .. } => Err(wrong_type()),
            State::Absent | State::Signal => {
                self.keys[place].state = State::Signal;
                Ok(())
            }
        }
    }

    /// The keys that the operation needs to know and does not.
    pub(super) fn unknown(&self) -> Vec<usize> {
        let is_unknown = |place: &usize| {
            let key = &self.keys[*place];
            key.is_wanted && key.known.is_none()
        };
        (0..self.keys.len()).filter(is_unknown).collect()
    }

    /// The keys that the evaluation read, that only a hint tells of, and that no change confirms.
    /// A change goes by the tenure, so it confirms the value, but not the end. How an end is set
    /// depends on the one before.
    pub(super) fn doubtful(&self, effects: &[(usize, Effect)]) -> Vec<usize> {
        let confirms = |effect: &Effect| !matches!(effect, Effect::SetEnd { .. });
        let confirmed = effects.iter().filter(|(_, effect)| confirms(effect));
        let confirmed: BTreeSet<usize> = confirmed.map(|(place, _)| *place).collect();
        let is_doubtful = |place: &usize| {
            let key = &self.keys[*place];
            let is_hint = key.known.as_ref().is_some_and(|known| known.trust == Trust::Hint);
            let is_confirmed = confirmed.contains(place) && !key.is_end_read;
            let is_signal = matches!(key.state, State::Signal);
            key.is_read && is_hint && !is_confirmed && !is_signal
        };
        (0..self.keys.len()).filter(is_doubtful).collect()
    }

    /// What must happen to the leases, in the order of their names, so that two operations on the
    /// same keys do not wait for each other.
    pub(super) fn effects(&self) -> Result<Vec<(usize, Effect)>, String> {
        let mut effects = Vec::new();
        for (place, key) in self.keys.iter().enumerate() {
            let Some(Known { stored, trust }) = &key.known else { continue };
            if *trust == Trust::Applied {
                continue;
            }
            let effect = match (stored, &key.state) {
                (None, State::Absent) | (_, State::Signal) => continue,
                (None, State::Value { bytes, ends_at, .. }) => {
                    Effect::Acquire { value: bytes.clone(), ends_at: *ends_at }
                }
                (Some(Stored { fence, is_durable, .. }), State::Absent) => {
                    Effect::Release { fence: *fence, is_durable: *is_durable }
                }
                (Some(stored), State::Value { bytes, is_end_set: false, .. })
                    if *bytes == stored.value =>
                {
                    continue;
                }
                (Some(stored), State::Value { bytes, ends_at, .. }) if *bytes == stored.value => {
                    let (fence, value, ends_at) = (stored.fence, bytes.clone(), *ends_at);
                    let is_longer = !stored.is_durable && ends_at >= stored.ends_at;
                    Effect::SetEnd { fence, value, ends_at, is_longer }
                }
                (Some(stored), State::Value { bytes, ends_at, .. }) if self.is_testing => {
                    let Stored { fence, is_durable, .. } = *stored;
                    let (value, ends_at) = (bytes.clone(), *ends_at);
                    Effect::Replace { fence, is_durable, value, ends_at }
                }
                (Some(_), State::Value { .. }) => {
                    return Err(format!(
                        "ERR '{}' is held with another value, and only DEL or its expiry ends \
                         that; use SET with NX",
                        key.name.escape_debug()
                    ));
                }
            };
            effects.push((place, effect));
        }
        effects.sort_by(|(one, _), (other, _)| self.keys[*one].name.cmp(&self.keys[*other].name));
        Ok(effects)
    }
}

pub(super) fn wrong_type() -> Stop {
    let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
    Stop(text.to_owned())
}

/// The prefix of the names of a database.
pub(super) fn prefix(database: u8) -> String {
    if database == 0 { String::new() } else { format!("db{database}:") }
}

/// The name of the lease of a key.
pub(super) fn lease_name(database: u8, key: &[u8]) -> Result<String, TextError> {
    let key = std::str::from_utf8(key).map_err(|_| TextError::NotUtf8)?;
    if key.is_empty() {
        return Err(TextError::Empty);
    }
    let name = prefix(database) + key;
    Name::new(&name)?;
    Ok(name)
}

/// The key of a lease in this database; `None` if the lease belongs to another one.
pub(super) fn key_of(database: u8, name: &str) -> Option<&str> {
    match database_of(name) {
        Some((other, key)) => (database == other).then_some(key),
        None => (database == 0).then_some(name),
    }
}

/// The database other than 0 that a lease belongs to, and its key there.
fn database_of(name: &str) -> Option<(u8, &str)> {
    let (digits, key) = name.strip_prefix("db")?.split_once(':')?;
    let database = digits.parse().ok().filter(|database| (1..DATABASES).contains(database))?;
    // `db03:` and `db+3:` are plain names.
    let is_plain = digits.starts_with(['0', '+']);
    (!is_plain).then_some((database, key))
}

/// What is left, in milliseconds; `None` for a key that does not end. A key that is there has at
/// least one left.
pub(super) fn millis_left(ends_at: Instant, now: Instant) -> Option<u64> {
    let left = ends_at.since(now).max(Duration::from_millis(1));
    (ends_at != Instant::MAX).then(|| u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}
