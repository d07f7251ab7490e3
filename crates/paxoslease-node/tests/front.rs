//! What a front-end can rely on.

mod cell;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paxoslease_node::front::{
    Answer, ConnId, FrontEnd, Hint, Holder, Instant, Name, Request, Service, ShardHandle,
};
use paxoslease_node::{Node, Remote, block_on};
use paxoslease_wire::ShardId;

const TTL: Duration = Duration::from_secs(60);
const ASK: u64 = 7;

/// What the front-ends have in common.
#[derive(Default)]
struct Seen {
    /// The other shard has nothing left to do, and has said so.
    other_is_idle: AtomicBool,
    answers: Mutex<Vec<Answer>>,
}

/// Asks for a name of the other shard when a client sends anything. When the node stops, withdraws
/// that only after the other shard could have ended.
#[derive(Default)]
struct Late {
    shard: u16,
    name: String,
    seen: Arc<Seen>,
    is_leaving: bool,
    has_asked: bool,
    has_abandoned: bool,
}

impl Late {
    fn name(&self) -> Name<'_> {
        Name::new(&self.name).expect("a name")
    }
}

impl FrontEnd for Late {
    fn received(&mut self, shard: &mut ShardHandle<'_>, _: ConnId, bytes: &[u8]) -> usize {
        if !std::mem::replace(&mut self.has_asked, true) {
            let lease = self.name().into();
            shard.ask(ASK, Request::acquire(lease, TTL, TTL));
        }
        bytes.len()
    }

    fn answered(&mut self, _: &mut ShardHandle<'_>, ask: u64, answer: Answer) {
        assert_eq!(ask, ASK);
        self.seen.answers.lock().expect("no panic").push(answer);
    }

    fn tick(&mut self, shard: &mut ShardHandle<'_>) {
        let is_time = self.is_leaving && self.seen.other_is_idle.load(Ordering::SeqCst);
        if self.has_asked && is_time && !std::mem::replace(&mut self.has_abandoned, true) {
            shard.ask(ASK, Request::Abandon { lease: self.name().into() });
        }
    }

    fn next_at(&self) -> Option<Instant> {
        (self.is_leaving && self.has_asked && !self.has_abandoned).then_some(Instant::ZERO)
    }

    fn leave(&mut self, _: &mut ShardHandle<'_>) {
        self.is_leaving = true;
    }

    fn is_done(&self) -> bool {
        if self.shard == 1 {
            self.seen.other_is_idle.fetch_or(self.is_leaving, Ordering::SeqCst);
        }
        !self.has_asked || !self.seen.answers.lock().expect("no panic").is_empty()
    }
}

/// Sends a note for a name of the other shard when a client sends anything, and keeps the notes
/// that it hears.
struct Notes {
    name: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl FrontEnd for Notes {
    fn accepted(&mut self, shard: &mut ShardHandle<'_>, _: ConnId) {
        shard.watch(true);
    }

    fn received(&mut self, shard: &mut ShardHandle<'_>, _: ConnId, bytes: &[u8]) -> usize {
        // One read may bring what the client sent many times.
        let text = Holder::from_bytes(&bytes[..bytes.len().min(2)]).expect("short");
        shard.note(Name::new(&self.name).expect("a name"), text);
        bytes.len()
    }

    fn answered(&mut self, _: &mut ShardHandle<'_>, _: u64, answer: Answer) {
        panic!("a note has no answer: {answer:?}");
    }

    fn hinted(&mut self, _: &mut ShardHandle<'_>, hint: &Hint) {
        let Hint::Note(label) = hint else { return };
        assert_eq!(label.name().as_str(), self.name);
        self.heard.lock().expect("no panic").push(label.holder().to_string());
    }
}

fn name_of_shard(shard: u16) -> String {
    let mut names = (0..).map(|number| format!("name-{number}"));
    let is_of = |name: &String| ShardId::of(Name::new(name).expect("a name"), 2).index() == shard;
    names.find(is_of).expect("a hash spreads")
}

#[test]
fn a_shard_that_stops_waits_for_requests_that_others_withdraw() {
    let (peers, address) = cell::listen();
    let (clients, clients_at) = cell::listen();
    let config = cell::config(&[address], 1).shards(2);
    let (seen, name) = (Arc::<Seen>::default(), name_of_shard(1));
    let make = {
        let (seen, name) = (Arc::clone(&seen), name.clone());
        move |shard| {
            let (seen, name) = (Arc::clone(&seen), name.clone());
            let front = Late { shard, name, seen, ..Late::default() };
            Box::new(front) as Box<dyn FrontEnd>
        }
    };
    let front = Box::new(make);
    let service = Service { clients: Some(clients), client_tls: None, front, recorder: None };
    let node = block_on(Node::start_with(config, Some(peers), service)).expect("starts");
    let remote: Remote = node.remote();
    let lease = Name::new(&name).expect("a name").into();
    let (ttl, wait) = (TTL, Duration::ZERO);
    let held = block_on(remote.ask(Request::acquire(lease, ttl, wait)));
    assert!(matches!(held, Answer::Granted { .. }), "{held:?}");
    // The first shard gets the first client.
    let mut client = TcpStream::connect(clients_at).expect("connects");
    client.write_all(b"go").expect("sends");
    cell::until("the request waits", || cell::status(&node).waiters == 1);
    node.shutdown_blocking();
    assert_eq!(*seen.answers.lock().expect("no panic"), [Answer::Abandoned]);
}

#[test]
fn a_note_for_a_name_of_another_shard_is_heard() {
    let (peers, address) = cell::listen();
    let (clients, clients_at) = cell::listen();
    let config = cell::config(&[address], 1).shards(2);
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let make = {
        let heard = Arc::clone(&heard);
        move |_| {
            let (name, heard) = (name_of_shard(1), Arc::clone(&heard));
            Box::new(Notes { name, heard }) as Box<dyn FrontEnd>
        }
    };
    let front = Box::new(make);
    let service = Service { clients: Some(clients), client_tls: None, front, recorder: None };
    let node = block_on(Node::start_with(config, Some(peers), service)).expect("starts");
    let mut client = TcpStream::connect(clients_at).expect("connects");
    // The other shard may learn after the first note that this one wants hints.
    cell::until("a note is heard", || {
        client.write_all(b"hi").expect("sends");
        heard.lock().expect("no panic").iter().any(|text| text.starts_with("hi"))
    });
    node.shutdown_blocking();
}
