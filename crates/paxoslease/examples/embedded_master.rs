//! Three processes of one small service. Each embeds a node, one of them is the master.
//!
//! ```text
//! cargo run -p paxoslease --example embedded_master
//! ```
//! starts all three, prints which process is master, kills it with `kill -9`, and shows that
//! another process becomes master. Or start them yourself in three terminals, and kill any of them:
//! ```text
//! cargo run -p paxoslease --example embedded_master -- \
//!     node 1 127.0.0.1:7401 127.0.0.1:7411 127.0.0.1:7421
//! ```
//! A real service would also set a data folder (`Config::data_dir`). Without one, a node stays
//! silent for `max_lease` after its start, because it may have forgotten the lease of the master.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use paxoslease::{Config, Node};

/// After the master dies, another process is master after this time at most.
const TTL: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => show(),
        [word, id, addresses @ ..] if word == "node" => serve(id.parse()?, addresses),
        _ => Err("usage: embedded_master [node ID ADDRESS_OF_1 ADDRESS_OF_2 ADDRESS_OF_3]".into()),
    }
}

/// One process of the service.
fn serve(id: u16, addresses: &[String]) -> Result<(), Box<dyn Error>> {
    let mut config = Config::new("embedded-master", id).max_lease(TTL);
    for (peer, address) in (1..).zip(addresses) {
        config = config.peer(peer, address);
    }
    let node = Node::start_blocking(config)?;
    println!("node {id}: started");
    loop {
        let me = format!("node {id}");
        let master = node.acquire("master", TTL).holder(&me).blocking()?;
        println!("node {id}: I am master, with fence {}", master.fence());
        // Here the master would do its work, call `is_held()` before each step, and send the fence
        // with every write.
        master.lost_blocking();
        println!("node {id}: no longer master");
    }
}

/// A process of the service, killed on drop.
struct Process(Child);

impl Process {
    /// Each line that it prints is printed here too, and sent with its id.
    fn start(id: u16, addresses: &[String], said: Sender<(u16, String)>) -> std::io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["node", &id.to_string()])
            .args(addresses)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().expect("it is piped");
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                println!("{line}");
                // The receiver is gone once the example ends.
                let _over = said.send((id, line));
            }
        });
        Ok(Self(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn show() -> Result<(), Box<dyn Error>> {
    let addresses = free_addresses()?;
    let (said, hear) = channel();
    let mut processes = Vec::new();
    for id in 1..=3 {
        processes.push((id, Process::start(id, &addresses, said.clone())?));
    }
    drop(said);
    let next_master = || loop {
        let (id, line) = hear.recv()?;
        if line.contains("I am master") {
            return Ok::<_, Box<dyn Error>>(id);
        }
    };
    let first = next_master()?;
    println!("--- killing node {first}, the master");
    // The drop sends SIGKILL, so the process cannot release its lease.
    processes.retain(|(id, _)| *id != first);
    let second = next_master()?;
    println!("--- node {second} took over from node {first}");
    Ok(())
}

/// Three addresses that no process uses now.
fn free_addresses() -> std::io::Result<Vec<String>> {
    let listeners: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
