//! Tasks with a connection of their own: watches, observers of elections, and the status of one
//! node. All of it is hints.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;
use paxoslease_holder::transport::Subscription;
use paxoslease_holder::{AskError, Change, LeaseInfo};
use paxoslease_wire::resp::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::election::LeaderChange;
use crate::endpoints::Endpoints;
use crate::engine::REFRESH;
use crate::engine::protocol::{
    self, Greeting, Push, Refusal, Word, put, put_get, put_hello_again, put_status, unexpected,
};
use crate::link::{Dialler, Link, LinkError};
use crate::status::NodeStatus;

/// The pause before a follower tries the next endpoint: at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a node may be silent before the follower probes it, and how long the answer may take.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The text that a probe asks a node to echo. A node answers PING to any client, but ECHO only to
/// a client that it still trusts.
const PROBE: &str = "alive";
/// The pause after a node could not tell who leads.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Asks the node at this endpoint only.
pub(crate) async fn status_of(dialler: &Dialler, endpoint: &str) -> Result<NodeStatus, AskError> {
    let mut out = Vec::new();
    put_status(&mut out);
    ask(dialler, endpoint, &out, |reply| match reply {
        Value::Error(text) => Err(Refusal::new(text).into_ask_error()),
        reply => Ok(NodeStatus::new(endpoint.to_owned(), protocol::owned_value(reply))),
    })
    .await
}

/// Sends one request to one node, with a connection of its own.
pub(crate) async fn ask<T, E: From<AskError>>(
    dialler: &Dialler,
    endpoint: &str,
    request: &[u8],
    read: impl FnOnce(Value<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let (mut link, _) = dialler.dial(endpoint).await?;
    let asked = async {
        link.send(request).await?;
        link.reply(read).await
    };
    let answer = timeout(dialler.config.request_timeout, asked).await;
    answer.unwrap_or(Err(LinkError::Timeout)).unwrap_or_else(|error| {
        let (endpoints, problem) = (vec![endpoint.to_owned()], error.to_string());
        Err(AskError::Unreachable { endpoints, problem }.into())
    })
}

/// Follows names that begin with a prefix, until the watch is dropped.
pub(crate) async fn watch(
    dialler: Rc<Dialler>,
    endpoints: Endpoints,
    first: String,
    subscription: Subscription,
) {
    let (prefix, follower) = (subscription.prefix(), WatchFollower(&subscription));
    let following = follow(&dialler, &endpoints, first, prefix, follower);
    tokio::select! {
        () = following => {}
        () = subscription.closed() => {}
    }
}

/// Follows who leads, until the observer is dropped.
pub(crate) async fn observe(
    dialler: Rc<Dialler>,
    endpoints: Endpoints,
    first: String,
    name: Box<str>,
    changes: Sender<LeaderChange>,
) {
    let observer = LeaderFollower {
        name: &name,
        changes: &changes,
        last: None,
        ask_at: None,
        is_asked: false,
    };
    tokio::select! {
        () = follow(&dialler, &endpoints, first, &name, observer) => {}
        () = changes.closed() => {}
    }
}

/// Gets the changes that a node reports for names with a prefix. `out` takes requests to the node.
trait Follower {
    fn connected(&mut self, endpoint: &str, out: &mut Vec<u8>);
    /// The connection broke, or a connection attempt failed.
    fn disconnected(&mut self, _problem: String) {}
    fn changed(&mut self, change: Change);
    /// The reply to a request of the follower.
    fn answered(&mut self, _reply: Value<'_>) {}
    /// When to call [`Self::tick`] at the latest.
    fn next_at(&self) -> Option<Instant> {
        None
    }
    fn tick(&mut self, _out: &mut Vec<u8>) {}
}

/// Follows a prefix at one node after the other. Ends only when no node trusts this client.
async fn follow(
    dialler: &Dialler,
    endpoints: &Endpoints,
    first: String,
    prefix: &str,
    mut follower: impl Follower,
) {
    let mut endpoint = first;
    let mut pause = PAUSE;
    let mut refusals = 0;
    loop {
        let error = match dialler.dial(&endpoint).await {
            Ok((link, greeting)) => {
                endpoints.learn(&greeting);
                let node = Followed { endpoints, endpoint: &endpoint, prefix };
                let heard = follow_at(link, node, &mut follower, &mut pause).await;
                match heard {
                    Err(LinkError::Refused(error)) => error,
                    Err(error) => {
                        let (endpoints, problem) = (vec![endpoint.clone()], error.to_string());
                        AskError::Unreachable { endpoints, problem }
                    }
                }
            }
            Err(error) => endpoints.judge(error),
        };
        refusals = if error.is_lack_of_trust() { refusals + 1 } else { 0 };
        let is_over = refusals >= endpoints.len();
        // Reports a disconnect once, not each failed attempt after it.
        if pause == PAUSE || is_over {
            follower.disconnected(match error {
                AskError::Unreachable { problem, .. } => format!("{endpoint}: {problem}"),
                error => error.to_string(),
            });
        }
        if is_over {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        endpoint = endpoints.after(&endpoint);
    }
}

/// What is followed, and where.
#[derive(Clone, Copy)]
struct Followed<'a> {
    endpoints: &'a Endpoints,
    endpoint: &'a str,
    prefix: &'a str,
}

/// Follows a prefix at one node, until the connection breaks.
async fn follow_at(
    mut link: Link,
    Followed { endpoints, endpoint, prefix }: Followed<'_>,
    follower: &mut impl Follower,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, LinkError> {
    let mut out = Vec::new();
    put(&mut out, &[Word::Text("LEASE.WATCH"), Word::Text(&format!("{prefix}*"))]);
    link.send(&out).await?;
    let accepted = link.reply(|reply| match reply {
        Value::Error(text) => Err(LinkError::Refused(Refusal::new(text).into_ask_error())),
        _ => Ok(()),
    });
    timeout(SILENCE_MAX, accepted).await.unwrap_or(Err(LinkError::Timeout))??;
    *pause = PAUSE;
    out.clear();
    follower.connected(endpoint, &mut out);
    let mut is_probed = false;
    let mut silent_at = Instant::now() + SILENCE_MAX;
    let mut refresh_at = Instant::now() + REFRESH;
    loop {
        link.send(&out).await?;
        out.clear();
        let wake_at = silent_at.min(refresh_at);
        let wake_at = follower.next_at().map_or(wake_at, |at| at.min(wake_at));
        let heard = link.receive(|value| {
            match value {
                Value::Push(items) => match Push::new(items) {
                    Some(Push::Change(change)) => follower.changed(change),
                    Some(Push::Members) => refresh_at = Instant::now(),
                    _ => {}
                },
                Value::Bulk(text) if text == PROBE.as_bytes() => {}
                Value::Map(_) if value.field(b"server").is_some() => {
                    // The members in a greeting are hints.
                    Greeting::new(value).iter().for_each(|greeting| endpoints.learn(greeting));
                }
                reply => {
                    check_trust(reply)?;
                    follower.answered(reply);
                }
            }
            Ok::<(), LinkError>(())
        });
        match timeout_at(wake_at, heard).await {
            Ok(heard) => {
                heard??;
                is_probed = false;
                silent_at = Instant::now() + SILENCE_MAX;
            }
            Err(_) if Instant::now() < silent_at => {}
            Err(_) if is_probed => return Err(LinkError::Timeout),
            Err(_) => {
                is_probed = true;
                put(&mut out, &[Word::Text("ECHO"), Word::Text(PROBE)]);
                silent_at = Instant::now() + SILENCE_MAX;
            }
        }
        if Instant::now() >= refresh_at {
            put_hello_again(&mut out);
            refresh_at = Instant::now() + REFRESH;
        }
        follower.tick(&mut out);
    }
}

/// A node may stop trusting a client. It says so in its next reply.
fn check_trust(reply: Value<'_>) -> Result<(), LinkError> {
    if let Value::Error(text) = reply
        && let Refusal::Final(error) = Refusal::new(text)
        && error.is_lack_of_trust()
    {
        return Err(LinkError::Refused(error));
    }
    Ok(())
}

struct WatchFollower<'a>(&'a Subscription);

impl Follower for WatchFollower<'_> {
    fn connected(&mut self, endpoint: &str, _: &mut Vec<u8>) {
        self.0.offer(&Arc::new(Change::Connected { endpoint: endpoint.to_owned() }));
    }

    fn disconnected(&mut self, problem: String) {
        self.0.offer(&Arc::new(Change::Disconnected { problem }));
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Missed(count) => self.0.miss(count),
            change => drop(self.0.offer(&Arc::new(change))),
        }
    }
}

/// Asks a majority when a hint reports a change, and when the last known lease should be over: not
/// every node announces an expired lease.
struct LeaderFollower<'a> {
    name: &'a str,
    changes: &'a Sender<LeaderChange>,
    /// The last change that was sent.
    last: Option<LeaderChange>,
    ask_at: Option<Instant>,
    is_asked: bool,
}

impl Follower for LeaderFollower<'_> {
    fn connected(&mut self, _: &str, out: &mut Vec<u8>) {
        self.is_asked = false;
        self.ask_at = Some(Instant::now());
        self.tick(out);
    }

    fn changed(&mut self, change: Change) {
        let is_relevant = match &change {
            Change::Held(LeaseInfo { name, .. })
            | Change::Freed { name }
            | Change::Expired { name, .. } => name == self.name,
            Change::Missed(_) => true,
            _ => false,
        };
        if is_relevant {
            self.ask_at = Some(Instant::now());
        }
    }

    fn answered(&mut self, reply: Value<'_>) {
        self.is_asked = false;
        let seen = match reply {
            Value::Error(_) => Err(unexpected("LEASE.GET")),
            reply => protocol::parse_get(self.name, reply),
        };
        let Ok(seen) = seen else {
            self.ask_at = Some(Instant::now() + ASK_AGAIN);
            return;
        };
        if let Some(seen) = &seen {
            let over_at = Instant::now() + seen.remaining.min(Duration::from_secs(3600));
            // A hint that came meanwhile sets an earlier time.
            self.ask_at = Some(self.ask_at.map_or(over_at, |at| at.min(over_at)));
        }
        let change = seen.map_or(LeaderChange::Vacant, |seen| LeaderChange::Elected(seen.into()));
        if self.last.as_ref() != Some(&change) {
            // An observer that is gone needs no change.
            let _gone = self.changes.force_send(change.clone());
            self.last = Some(change);
        }
    }

    fn next_at(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.is_asked)
    }

    fn tick(&mut self, out: &mut Vec<u8>) {
        if self.next_at().is_some_and(|at| at <= Instant::now()) {
            self.ask_at = None;
            self.is_asked = true;
            put_get(out, self.name);
        }
    }
}
