//! A node that reads commands from standard input, to try leases out, and for tests with processes.
//!
//! Start three of them in three terminals, then type commands; `help` lists them.
//!
//! ```text
//! P="cell='try' peers.1='127.0.0.1:7401' peers.2='127.0.0.1:7411' peers.3='127.0.0.1:7421'"
//! cargo run -p paxoslease-node --example lease_shell -- --ephemeral $P node=1     (node=2, node=3)
//! ```
//!
//! Every command is answered by one line: a word, a name, then `key=value`. Times are nanoseconds
//! of the clock of the node, which all processes of a machine share, so the lines of several shells
//! can be put in one order. `is_held` was read between `from` and `to`. A command that takes long
//! does not delay the next one.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io::stdin;
use std::pin::pin;
use std::process::{ExitCode, id};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_channel::{Receiver, Sender, unbounded};
use paxoslease_node::{Config, LeaseGuard, Node, block_on, parse_duration};
use rustix::time::{ClockId, clock_gettime};

const USAGE: &str = "usage: lease_shell [--new-cell | --ephemeral] [--reset-stable-record] \
    KEY=VALUE..., each a line of a configuration in TOML, such as node=1 or cell='try'";

const HELP: &str = "help  acquire NAME TTL [WAIT] (no WAIT: do not wait)  held NAME  \
    release NAME  inspect NAME  ready  status  quit";

fn main() -> ExitCode {
    let node = config(std::env::args().skip(1))
        .and_then(|config| Node::start_blocking(config).map_err(|error| error.to_string()));
    let node = match node {
        Ok(node) => node,
        Err(error) => {
            eprintln!("lease_shell: {error}");
            return ExitCode::FAILURE;
        }
    };
    let quarantine = block_on(node.status()).map(|status| status.quarantine_remaining);
    let quarantine_ms = quarantine.unwrap_or_default().as_millis();
    println!("started node={} pid={} quarantine_ms={quarantine_ms} at={}", node.id(), id(), now());
    let mut shell = Shell { node, leases: BTreeMap::new(), threads: Vec::new() };
    for line in stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["quit"] {
            break;
        }
        if let Err(error) = shell.run(&words) {
            println!("error {error}");
        }
    }
    shell.quit();
    ExitCode::SUCCESS
}

/// Reads flags, and lines of a configuration.
fn config(args: impl Iterator<Item = String>) -> Result<Config, String> {
    let (flags, lines): (Vec<_>, Vec<_>) = args.partition(|arg| arg.starts_with("--"));
    let config = Config::from_toml(&lines.join("\n"));
    let config = config.map_err(|error| format!("{}; {USAGE}", error.problem()))?;
    flags.iter().try_fold(config, |config, flag| match flag.as_str() {
        "--new-cell" => Ok(config.new_cell(true)),
        "--ephemeral" => Ok(config.ephemeral()),
        "--reset-stable-record" => Ok(config.reset_stable_record(true)),
        _ => Err(format!("unknown {flag}; {USAGE}")),
    })
}

fn span(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// A question to the thread that owns a lease.
enum Ask {
    Held,
    Release,
}

struct Shell {
    node: Node,
    /// Each lease belongs to a thread of its own.
    leases: BTreeMap<String, Sender<Ask>>,
    threads: Vec<JoinHandle<()>>,
}

impl Shell {
    fn run(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            [] => {}
            ["help"] => println!("help {HELP}"),
            ["acquire", name, ttl] => self.acquire(name, span(ttl)?, Duration::ZERO),
            ["acquire", name, ttl, wait] => self.acquire(name, span(ttl)?, span(wait)?),
            ["held", name] => self.ask(name, Ask::Held),
            ["release", name] => self.ask(name, Ask::Release),
            ["inspect", name] => {
                let name = (*name).to_owned();
                self.meanwhile(move |node| inspect(&node, &name));
            }
            ["ready"] => self.meanwhile(|node| match block_on(node.ready()) {
                Ok(()) => println!("ready at={}", now()),
                Err(error) => println!("error {error}"),
            }),
            ["status"] => {
                let status = block_on(self.node.status());
                let status = status.map_err(|error| error.to_string())?;
                let json = serde_json::to_string(&status).map_err(|error| error.to_string())?;
                println!("status {json}");
            }
            _ => return Err(format!("{:?} is not a command; {HELP}", words.join(" "))),
        }
        Ok(())
    }

    fn meanwhile(&mut self, work: impl FnOnce(Node) + Send + 'static) {
        let node = self.node.clone();
        self.threads.push(thread::spawn(move || work(node)));
    }

    fn acquire(&mut self, name: &str, ttl: Duration, wait: Duration) {
        let (sender, asks) = unbounded();
        self.leases.insert(name.to_owned(), sender);
        let name = name.to_owned();
        self.meanwhile(move |node| {
            let asked_at = now();
            match node.acquire(&name, ttl).wait(wait).blocking() {
                Ok(lease) => {
                    println!("acquired {name} asked_at={asked_at} {}", Belief::of(&lease));
                    block_on(hold(lease, &asks));
                }
                Err(error) => println!("refused {name} asked_at={asked_at} at={} {error}", now()),
            }
        });
    }

    fn ask(&self, name: &str, ask: Ask) {
        // A thread that has ended holds nothing.
        if self.leases.get(name).is_none_or(|lease| lease.try_send(ask).is_err()) {
            let at = now();
            println!("held {name} is_held=false from={at} to={at}");
        }
    }

    /// Stops cleanly: the node releases its leases and writes its snapshot.
    fn quit(mut self) {
        self.node.shutdown_blocking();
        self.leases.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that itself.
            let _panicked = thread.join();
        }
        println!("stopped at={}", now());
    }
}

/// Owns a lease: answers questions about it, and prints when it is lost.
async fn hold(lease: LeaseGuard, asks: &Receiver<Ask>) {
    let mut told = false;
    loop {
        let next = {
            let mut ask = pin!(asks.recv());
            let mut lost = pin!(async {
                match told {
                    true => pending().await,
                    false => lease.lost().await,
                }
            });
            poll_fn(|context| match lost.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => ask.as_mut().poll(context).map(Some),
            })
            .await
        };
        match next {
            None => {
                told = true;
                println!("lost {} {}", lease.name(), Belief::of(&lease));
            }
            Some(Ok(Ask::Held)) => println!("held {} {}", lease.name(), Belief::of(&lease)),
            Some(Ok(Ask::Release)) => return release(lease).await,
            // The shell quits, or asked for the same name again.
            Some(Err(_)) => return,
        }
    }
}

async fn release(lease: LeaseGuard) {
    let (name, fence, asked_at) = (lease.name().to_owned(), lease.fence(), now());
    match lease.release().await {
        Ok(()) => println!("released {name} fence={fence} asked_at={asked_at} at={}", now()),
        Err(error) => println!("unreleased {name} fence={fence} at={} {error}", now()),
    }
}

fn inspect(node: &Node, name: &str) {
    match block_on(node.inspect(name)) {
        Ok(Some(seen)) => {
            let (fence, left) = (seen.fence, seen.remaining.as_millis());
            let holder = seen.holder;
            println!("inspected {name} fence={fence} remaining_ms={left} at={} {holder}", now());
        }
        Ok(None) => println!("inspected {name} at={} free", now()),
        Err(error) => println!("error {error}"),
    }
}

/// The state of a guard, and the readings of the clock before and after it was read.
struct Belief {
    from: u64,
    is_held: bool,
    remaining: Duration,
    to: u64,
    fence: u64,
}

impl Belief {
    fn of(lease: &LeaseGuard) -> Self {
        let from = now();
        let (is_held, remaining) = (lease.is_held(), lease.remaining());
        Self { from, is_held, remaining, to: now(), fence: lease.fence() }
    }
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, is_held, remaining, to, fence } = self;
        let left = remaining.as_millis();
        write!(f, "fence={fence} is_held={is_held} remaining_ms={left} from={from} to={to}")
    }
}

/// The time on a clock that all processes of this machine share.
fn now() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    let reading = clock_gettime(clock);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}
