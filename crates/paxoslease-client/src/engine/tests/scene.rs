//! Conversations between a client and a node, as transcripts in `transcripts/`.
//!
//! ```text
//! client 2                    a new client with two endpoints, connected to a node
//! client 1 unconnected        the same, without a connection
//! a = acquire x for 1s wait 30s    a call with the label `a`; see `Scene::call` for all calls
//! a = acquire x durable forever
//! pass 4s                     time passes; `pass timer`: until the next timer of the client
//! node +QUEUED                the node sends these lines of RESP, separated by ` | `
//! breaks, connects            the connection, each time to the next endpoint
//! endpoint fails              one endpoint could not be reached
//! connects 3 a:1 b:1          to a node that reports these members of epoch 3
//! reports 3 a:1 b:1           the node answers HELLO so
//! unreachable                 no endpoint could be reached
//! show a, drop a              a lease; or a call
//! pass 1s && show a           both, before the client's thread runs
//! 3 times: pass 1s            one after the other
//! ```
//!
//! The output of a command is everything that it causes: requests, results, states of leases.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Write as _};
use std::future::IntoFuture as _;
use std::path::Path;
use std::time::Duration;

use paxoslease_rig::check_transcript;

use super::support::{ManualClient, ManualFuture, TTL, hello, unreachable};
use crate::test_util::greeting;
use crate::{Acquire, Grant, LeaseGuard, LeaseState};

#[test]
fn the_client_speaks_as_its_transcripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/tests/transcripts");
    for page in ["beliefs", "durable", "following", "leases", "moving", "quorum"] {
        let mut scene = Scene::new(1);
        check_transcript(&folder.join(page).with_extension("txt"), |command| {
            scene.run(command);
            std::mem::take(&mut scene.output)
        });
    }
}

struct Scene {
    manual: ManualClient,
    is_connected: bool,
    calls: BTreeMap<String, ManualFuture<Result<Outcome, String>>>,
    leases: BTreeMap<String, (LeaseGuard, LeaseState)>,
    grants: BTreeMap<String, Grant>,
    endpoints: Vec<String>,
    /// The last reported reason to leave the node, need of a connection, and end of the client.
    state: (Option<String>, bool, bool),
    output: String,
}

enum Outcome {
    Lease(LeaseGuard),
    Grant(Grant),
    Other(String),
}

fn duration(text: &str) -> Duration {
    let number = |number: &str| number.parse().expect(text);
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        _ if text == "forever" => Duration::MAX,
        (Some(millis), _) => Duration::from_millis(number(millis)),
        (None, Some(seconds)) => Duration::from_secs(number(seconds)),
        (None, None) => panic!("{text} has no unit"),
    }
}

/// The words after `key`.
fn option<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == key).map(|at| words[at + 1])
}

impl Scene {
    fn new(endpoints: usize) -> Self {
        let manual = ManualClient::new(endpoints);
        Self {
            endpoints: manual.engine.endpoints.all(),
            manual,
            is_connected: false,
            calls: BTreeMap::new(),
            leases: BTreeMap::new(),
            grants: BTreeMap::new(),
            state: (None, false, false),
            output: String::new(),
        }
    }

    fn run(&mut self, line: &str) {
        if let Some((count, line)) = line.split_once(" times: ") {
            return (0..count.parse().expect("a number")).for_each(|_: u32| self.run(line));
        }
        line.split(" && ").for_each(|command| self.command(command));
        self.observe();
    }

    fn command(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["client", endpoints, ..] => {
                *self = Self::new(endpoints.parse().expect("a number"));
                if words.len() == 2 {
                    self.connect();
                }
            }
            [label, "=", ref call @ ..] => {
                let call = self.call(call);
                self.calls.insert(label.to_owned(), call);
                self.poll_calls();
            }
            ["pass", "timer"] => {
                let at = self.manual.engine.next_at().expect("a timer");
                self.manual.advance(at.since(self.manual.now()));
            }
            ["pass", span] => self.manual.advance(duration(span)),
            ["node", ..] => {
                let text = command.strip_prefix("node ").expect("a text").replace(" | ", "\r\n");
                if let Err(error) = self.manual.try_reply(&format!("{text}\r\n")) {
                    self.say("not RESP", &error);
                }
            }
            ["breaks"] => {
                let was_useful = self.manual.engine.disconnected();
                self.is_connected = false;
                self.say("the node was useful", &was_useful);
            }
            ["connects"] => self.connect(),
            ["connects", epoch, ref members @ ..] => {
                self.manual.greeted(greeting(epoch.parse().expect("a number"), members));
                self.is_connected = true;
            }
            ["reports", epoch, ref members @ ..] => {
                self.manual.reply(&hello(epoch.parse().expect("a number"), members));
            }
            ["endpoint", "fails"] => self.manual.engine.endpoint_failed(),
            ["unreachable", ref hastily @ ..] => {
                let (now, was_hasty) = (self.manual.now(), !hastily.is_empty());
                self.manual.engine.unreachable(now, &unreachable(), was_hasty);
            }
            ["show", label] => self.show(label),
            ["drop", label] => {
                self.calls.remove(label);
                self.leases.remove(label);
                self.grants.remove(label);
            }
            _ => panic!("unknown command: {command}"),
        }
    }

    fn connect(&mut self) {
        self.manual.connect();
        self.is_connected = true;
    }

    fn call(&mut self, words: &[&str]) -> ManualFuture<Result<Outcome, String>> {
        async fn result<T>(
            call: impl Future<Output = Result<T, impl Debug + Display>>,
            outcome: impl FnOnce(T) -> Outcome,
        ) -> Result<Outcome, String> {
            call.await.map(outcome).map_err(|error| format!("{error:?}\n{error}"))
        }
        fn other(outcome: impl Debug) -> Outcome {
            Outcome::Other(format!("{outcome:?}"))
        }
        let client = self.manual.client.clone();
        let ttl = option(words, "for").map_or(TTL, duration);
        let wait = option(words, "wait").map_or(Duration::ZERO, duration);
        let name = words.get(1).copied().unwrap_or_default().to_owned();
        let holder = option(words, "holder").unwrap_or("me");
        let fence = words.get(2).and_then(|word| word.parse().ok());
        match words[0] {
            "acquire" | "detached" => {
                let acquire = client.acquire(&name, ttl).holder(holder).wait(wait);
                let lasts = option(words, "durable").map(duration);
                let acquire = lasts.into_iter().fold(acquire, Acquire::durable);
                if words[0] == "acquire" {
                    ManualFuture::new(result(acquire.into_future(), Outcome::Lease))
                } else {
                    ManualFuture::new(result(acquire.detached().into_future(), Outcome::Grant))
                }
            }
            "give-back" => {
                let (lease, _) = self.leases.remove(&name).expect("a lease");
                ManualFuture::new(result(lease.release(), other))
            }
            "get" => ManualFuture::new(async move { result(client.get(&name), other).await }),
            "list" => {
                let list = client.list(&name).page_len(2);
                ManualFuture::new(result(list.all(), other))
            }
            "release" => {
                let fence = fence.expect("a fence");
                ManualFuture::new(async move { result(client.release(&name, fence), other).await })
            }
            "release-durable" => {
                let fence = fence.expect("a fence");
                let work = async move { result(client.release_durable(&name, fence), other).await };
                ManualFuture::new(work)
            }
            "keep" => {
                let fence = fence.expect("a fence");
                let work =
                    async move { result(client.keep(&name, fence, ttl), Outcome::Grant).await };
                ManualFuture::new(work)
            }
            "renew" => {
                let fence = fence.expect("a fence");
                ManualFuture::new(
                    async move { result(client.renew(&name, fence, ttl), other).await },
                )
            }
            "status" => ManualFuture::new(async move {
                let endpoint = |status: crate::NodeStatus| Outcome::Other(status.endpoint);
                result(client.status(), endpoint).await
            }),
            "shutdown" => ManualFuture::new(async move {
                client.shutdown().await;
                Ok(other(()))
            }),
            _ => panic!("unknown call: {words:?}"),
        }
    }

    fn say(&mut self, what: &str, outcome: &dyn Debug) {
        writeln!(self.output, "{what}: {outcome:?}").expect("a string has room");
    }

    fn show(&mut self, label: &str) {
        let text = match (self.leases.get(label), self.grants.get(label)) {
            (Some((lease, _)), _) => {
                let (name, holder, fence) = (lease.name(), lease.holder(), lease.fence());
                let (state, left) = (lease.state(), lease.remaining());
                format!("{state:?}, {left:?} left, {name} by {holder}, fence {fence}")
            }
            (None, Some(grant)) => {
                let is_held = if grant.is_held() { "held" } else { "over" };
                let (fence, ttl, waited) = (grant.fence(), grant.ttl(), grant.waited());
                format!("{is_held}, fence {fence}, ttl {ttl:?}, waited {waited:?}")
            }
            (None, None) => "no lease".to_owned(),
        };
        writeln!(self.output, "{label}: {text}").expect("a string has room");
    }

    /// Lets the client run, and reports everything that is new.
    fn observe(&mut self) {
        let mut seen = None;
        while seen != Some(self.output.len()) || !self.manual.commands.is_empty() {
            seen = Some(self.output.len());
            for sent in self.manual.sent() {
                writeln!(self.output, "sends {sent}").expect("a string has room");
            }
            self.poll_calls();
            self.check_leases();
        }
        let engine = &self.manual.engine;
        let endpoints = engine.endpoints.all();
        if endpoints != self.endpoints {
            self.output += &format!("endpoints: {}\n", endpoints.join(", "));
            self.endpoints = endpoints;
        }
        let leaves = engine.leave_reason().map(ToString::to_string);
        let wants_session = !self.is_connected && engine.wants_session();
        let state = (leaves, wants_session, engine.is_done(self.manual.now()));
        let (leaves, wants_session, is_done) = &state;
        if leaves.is_some() && *leaves != self.state.0 {
            self.output += &format!("leaves: {}\n", leaves.as_deref().unwrap_or_default());
        }
        if !self.is_connected && *wants_session != self.state.1 {
            self.output += if *wants_session { "wants a connection\n" } else { "wants none\n" };
        }
        if *is_done != self.state.2 {
            self.output += "done\n";
        }
        self.state = state;
    }

    fn poll_calls(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|label, call| {
            let Some(outcome) = call.poll() else { return true };
            match outcome {
                Ok(Outcome::Lease(lease)) => {
                    let state = lease.state();
                    self.leases.insert(label.clone(), (lease, state));
                    self.show(label);
                }
                Ok(Outcome::Grant(grant)) => {
                    self.grants.insert(label.clone(), grant);
                    self.show(label);
                }
                Ok(Outcome::Other(text)) => self.output += &format!("{label}: {text}\n"),
                Err(error) => self.output += &format!("{label}: {error}\n"),
            }
            false
        });
        self.calls.append(&mut calls);
    }

    fn check_leases(&mut self) {
        for (label, (lease, known)) in &mut self.leases {
            let state = lease.state();
            if std::mem::replace(known, state) != state {
                self.output += &format!("{label} is {state:?}\n");
            }
        }
    }
}
