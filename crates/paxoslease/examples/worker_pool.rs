//! Workers share jobs. Each job has a lease, so that one worker at a time runs it. When a worker
//! dies, another worker runs its job once the lease has expired.
//!
//! ```text
//! cargo run -p paxoslease --example worker_pool
//! ```
//! runs a cell of three nodes in this process and three workers as processes of their own. The
//! first worker dies in the middle of its first job. Workers join the cell as proposers: they
//! acquire leases and have no vote, so there may be any number of them, and they may come and go.

mod shared;

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, abort, id};
use std::time::Duration;

use paxoslease::{AcquireError, LeaseGuard, Node, Role};
use rustix::time::{ClockId, clock_gettime};

const CELL: &str = "worker-pool";
/// How long a job stays with a worker that died.
const TTL: Duration = Duration::from_secs(1);
const JOBS: u32 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => run_pool(),
        [word, worker, done, crash, members @ ..] if word == "worker" => {
            let worker = Worker::join(worker.parse()?, Path::new(done), crash == "crash", members)?;
            worker.work()
        }
        _ => Err("usage: worker_pool".into()),
    }
}

/// Starts the cell and the workers, and waits until all jobs are done.
fn run_pool() -> Result<(), Box<dyn Error>> {
    let (members, _nodes) = shared::start_cell(CELL, TTL)?;
    // A finished job leaves a file here.
    let done = std::env::temp_dir().join(format!("worker-pool-{}", id()));
    fs::create_dir_all(&done)?;
    let worker = |id: &str, crash: &str| -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", id]).arg(&done).arg(crash).args(&members);
        Ok(command)
    };
    // The worker that will die starts first, so that it gets a job.
    let mut first = worker("11", "crash")?.stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(first.stdout.take().expect("it is piped")).lines();
    println!("{}", said.next().ok_or("worker 11 ended early")??);
    let others = [worker("12", "")?.spawn()?, worker("13", "")?.spawn()?];
    for line in said {
        println!("{}", line?);
    }
    println!("worker 11 ended: {}", first.wait()?);
    for mut other in others {
        other.wait()?;
    }
    let finished = fs::read_dir(&done)?.count();
    fs::remove_dir_all(&done)?;
    println!("{finished} of {JOBS} jobs are done");
    Ok(())
}

struct Worker {
    id: u16,
    node: Node,
    done: PathBuf,
    crash: bool,
}

impl Worker {
    fn join(id: u16, done: &Path, crash: bool, members: &[String]) -> Result<Self, Box<dyn Error>> {
        let node =
            Node::start_blocking(shared::config(CELL, id, TTL, members).role(Role::Proposer))?;
        Ok(Self { id, node, done: done.to_owned(), crash })
    }

    /// Runs every job that is free. Waits for a job of another worker only if no other is left.
    fn work(&self) -> Result<(), Box<dyn Error>> {
        loop {
            let mut held_by_others = None;
            for job in (0..JOBS).map(|number| format!("jobs/{number}")) {
                if self.is_done(&job) {
                    continue;
                }
                match self.node.try_acquire(&job, TTL).blocking() {
                    Ok(lease) => self.run(lease)?,
                    Err(AcquireError::Held { name, .. }) => held_by_others = Some(name),
                    Err(error) => return Err(error.into()),
                }
            }
            match held_by_others {
                Some(job) => self.run(self.node.acquire(&job, TTL).blocking()?)?,
                None => break,
            }
        }
        self.node.shutdown_blocking();
        Ok(())
    }

    fn run(&self, lease: LeaseGuard) -> Result<(), Box<dyn Error>> {
        // Another worker may have finished the job before this one acquired its lease.
        if self.is_done(lease.name()) {
            return Ok(lease.release_blocking()?);
        }
        self.say("runs", &lease);
        let mut primes = 0;
        for step in 0..10_u32 {
            if !lease.is_held() {
                self.say("lost", &lease);
                return Ok(());
            }
            if self.crash && step == 5 {
                self.say("dies in", &lease);
                abort();
            }
            primes += (step * 20_000..(step + 1) * 20_000).filter(|n| is_prime(*n)).count();
        }
        fs::write(self.file(lease.name()), primes.to_string())?;
        self.say("finished", &lease);
        Ok(lease.release_blocking()?)
    }

    fn say(&self, what: &str, lease: &LeaseGuard) {
        let (id, job, fence) = (self.id, lease.name(), lease.fence());
        println!("worker {id} {what} {job} fence={fence} at={}", now());
    }

    fn is_done(&self, job: &str) -> bool {
        self.file(job).exists()
    }

    fn file(&self, job: &str) -> PathBuf {
        self.done.join(job.replace('/', "-"))
    }
}

/// The work of this example.
fn is_prime(number: u32) -> bool {
    number > 1 && (2..).take_while(|d| d * d <= number).all(|d| !number.is_multiple_of(d))
}

/// Nanoseconds of a clock that all processes share, to put their lines in order.
fn now() -> u64 {
    let reading = clock_gettime(ClockId::Monotonic);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}
