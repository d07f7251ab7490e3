//! Why a lease comes with a fence: a holder may be paused after it last looked, and write when the
//! lease is somebody else's already. A store that refuses lower fences is not harmed by that.
//!
//! ```text
//! cargo run -p paxoslease --example fenced_store
//! ```
//! runs a store and a cell in this process, and two writers as processes of their own. The first is
//! stopped (`SIGSTOP`) exactly between its look at the lease and its write, for longer than the
//! lease lasts. The second takes over and writes. Then the first goes on (`SIGCONT`) and writes as
//! if nothing had happened; the store refuses.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use paxoslease::{Config, Node, Role};
use rustix::process::{Pid, Signal, getpid, kill_process};

const TTL: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => show(),
        [word, id, pause, store, members @ ..] if word == "writer" => {
            write(id.parse()?, pause == "pause", store, members)
        }
        _ => Err("usage: fenced_store".into()),
    }
}

/// Keeps one value, and the highest fence that anybody wrote with.
#[derive(Default)]
struct Store {
    value: String,
    fence: u64,
}

impl Store {
    /// All the store has to do: one comparison. Equal is fine, a holder may write many times.
    fn put(&mut self, fence: u64, value: &str) -> Result<(), String> {
        if fence < self.fence {
            return Err(format!("fence {fence} is stale, {} was seen", self.fence));
        }
        (self.fence, self.value) = (fence, value.to_owned());
        Ok(())
    }

    /// One line per write, `FENCE VALUE`; one line in return.
    fn serve(mut self, listener: &TcpListener) -> std::io::Result<()> {
        for connection in listener.incoming() {
            let mut connection = connection?;
            let mut line = String::new();
            BufReader::new(&connection).read_line(&mut line)?;
            let Some((fence, value)) = line.trim_end().split_once(' ') else { continue };
            let answer = match self.put(fence.parse().unwrap_or(0), value) {
                Ok(()) => "written".to_owned(),
                Err(why) => format!("refused: {why}"),
            };
            println!("store: {value:?} with fence {fence} {answer}; it holds {:?}", self.value);
            writeln!(connection, "{answer}")?;
        }
        Ok(())
    }
}

/// One writer: takes the lease, looks, and writes.
fn write(id: u16, pause: bool, store: &str, members: &[String]) -> Result<(), Box<dyn Error>> {
    let node = Node::start_blocking(config(id, members).role(Role::Proposer))?;
    let lease = node.acquire("store", TTL).blocking()?;
    assert!(lease.is_held(), "a lease just granted is held, unless we were paused since");
    println!("writer {id}: holds the lease with fence {}", lease.fence());
    if pause {
        // The worst moment, after the last look. Machines do this too, for longer than one thinks.
        kill_process(getpid(), Signal::STOP)?;
    }
    let mut connection = TcpStream::connect(store)?;
    writeln!(connection, "{} from-{id}", lease.fence())?;
    let mut answer = String::new();
    BufReader::new(connection).read_line(&mut answer)?;
    println!("writer {id}: is_held={}, store says {}", lease.is_held(), answer.trim_end());
    Ok(())
}

fn show() -> Result<(), Box<dyn Error>> {
    let (members, _nodes) = start_cell()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let store = listener.local_addr()?.to_string();
    thread::spawn(move || Store::default().serve(&listener));
    let writer = |id: &str, pause: &str| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["writer", id, pause, &store]).args(&members);
        command.stdout(Stdio::piped()).spawn()
    };

    let mut first = writer("11", "pause")?;
    let mut said = BufReader::new(first.stdout.take().expect("it is piped")).lines();
    println!("{}", said.next().ok_or("writer 11 ended early")??);
    println!("--- writer 11 is stopped between its look at the lease and its write");
    let second = writer("12", "")?.wait_with_output()?;
    print!("{}", String::from_utf8_lossy(&second.stdout));
    println!("--- writer 11 goes on");
    kill_process(Pid::from_child(&first), Signal::CONT)?;
    for line in said {
        println!("{}", line?);
    }
    first.wait()?;
    Ok(())
}

/// Three nodes in this process. Nobody used this cell before, and none will start again.
fn start_cell() -> Result<(Vec<String>, Vec<Node>), Box<dyn Error>> {
    let listeners: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let mut members = Vec::new();
    for listener in &listeners {
        members.push(listener.local_addr()?.to_string());
    }
    let mut nodes = Vec::new();
    for (id, listener) in (1..).zip(listeners) {
        let config = config(id, &members).ephemeral();
        nodes.push(paxoslease::block_on(Node::start_on(config, listener))?);
    }
    Ok((members, nodes))
}

fn config(id: u16, members: &[String]) -> Config {
    let config = Config::new("fenced-store", id).max_lease(TTL);
    (1..).zip(members).fold(config, |config, (id, address)| config.peer(id, address))
}
