//! Why a lease comes with a fence: a holder may be paused after it checked its lease, and write
//! when another client already holds that lease. A store that refuses lower fences takes no harm.
//!
//! ```text
//! cargo run -p paxoslease --example fenced_store
//! ```
//! runs a store and a cell in this process, and two writers as processes of their own. The first
//! writer is stopped (`SIGSTOP`) between its check of the lease and its write, for longer than the
//! lease lasts. The second writer acquires the lease and writes. Then the first continues
//! (`SIGCONT`) and writes as if nothing had happened. The store refuses that write.

mod shared;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use paxoslease::{Node, Role};
use rustix::process::{Pid, Signal, getpid, kill_process};

const CELL: &str = "fenced-store";
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

/// Keeps one value, and the highest fence of all writes.
#[derive(Default)]
struct Store {
    value: String,
    fence: u64,
}

impl Store {
    /// One comparison is all that the store needs. A holder may write many times, so an equal fence
    /// is accepted.
    fn put(&mut self, fence: u64, value: &str) -> Result<(), String> {
        if fence < self.fence {
            return Err(format!("fence {fence} is stale, {} was seen", self.fence));
        }
        (self.fence, self.value) = (fence, value.to_owned());
        Ok(())
    }

    /// Each connection sends one line, `FENCE VALUE`, and gets one line in return.
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

/// One writer: acquires the lease, checks it, and writes.
fn write(id: u16, pause: bool, store: &str, members: &[String]) -> Result<(), Box<dyn Error>> {
    let node = Node::start_blocking(shared::config(CELL, id, TTL, members).role(Role::Proposer))?;
    let lease = node.acquire("store", TTL).blocking()?;
    assert!(lease.is_held(), "a new lease is held, unless this process was paused since");
    println!("writer {id}: holds the lease with fence {}", lease.fence());
    if pause {
        // The worst moment: after the last check. A busy machine can cause such a pause too.
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
    let (members, _nodes) = shared::start_cell(CELL, TTL)?;
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
    println!("--- writer 11 is stopped between its check of the lease and its write");
    let second = writer("12", "")?.wait_with_output()?;
    print!("{}", String::from_utf8_lossy(&second.stdout));
    println!("--- writer 11 continues");
    kill_process(Pid::from_child(&first), Signal::CONT)?;
    for line in said {
        println!("{}", line?);
    }
    first.wait()?;
    Ok(())
}
