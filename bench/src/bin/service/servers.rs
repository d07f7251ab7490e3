//! The processes that are compared. They are killed by their ids when dropped, also after a
//! failure, and their folders go with them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use paxoslease_bench::clock::{now, sleep};
use paxoslease_load::{Dialect, Extent, Plan, Workload};

const NODES: u16 = 3;
const READY_MAX: Duration = Duration::from_secs(30);

/// Something that is put under load.
pub(crate) trait Server {
    fn processes(&self) -> &[Process];

    /// How long its processes ran so far.
    fn cpu(&self) -> Result<Duration> {
        self.processes().iter().map(Process::cpu).sum()
    }
}

/// One Redis server without persistence.
pub(crate) struct Redis {
    pub(crate) endpoint: String,
    process: [Process; 1],
    _folder: Folder,
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let folder = Folder::new("redis")?;
        let [port] = free_ports()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&folder.0);
        let process = [Process::spawn(command, &folder.0.join("log"))
            .context("is redis-server installed? On Debian: apt-get install redis-server")?];
        let endpoint = format!("127.0.0.1:{port}");
        let server = Self { endpoint, process, _folder: folder };
        await_service(&server.endpoint, Dialect::Redis)?;
        Ok(server)
    }
}

impl Server for Redis {
    fn processes(&self) -> &[Process] {
        &self.process
    }
}

/// Three nodes of ours.
pub(crate) struct Cell {
    /// Of node 1, 2 and 3, for clients.
    pub(crate) endpoints: Vec<String>,
    nodes: Vec<Process>,
    _folder: Folder,
}

impl Cell {
    pub(crate) fn start(binary: Option<PathBuf>, spin: &str) -> Result<Self> {
        let binary = binary.map_or_else(beside_this, Ok)?;
        let folder = Folder::new("cell")?;
        let peers: [u16; NODES as usize] = free_ports()?;
        let clients: [u16; NODES as usize] = free_ports()?;
        let mut nodes = Vec::new();
        for node in 1..=NODES {
            let mut command = Command::new(&binary);
            // It stops when its stdin is closed: no node outlives a benchmark that was killed.
            command.args(["serve", "--with-parent", "--new-cell", "--shards", "1"]);
            command.args(["--spin", spin]);
            command.args(["--node", &node.to_string(), "--listen-http", "off"]);
            let client = clients[usize::from(node) - 1];
            command.args(["--listen-clients", &format!("127.0.0.1:{client}")]);
            for (peer, port) in (1..).zip(peers) {
                command.args(["--peer", &format!("{peer}=127.0.0.1:{port}")]);
            }
            command.arg("--data-dir").arg(folder.0.join(node.to_string()));
            let log = folder.0.join(format!("{node}.log"));
            nodes.push(Process::spawn(command, &log)?);
        }
        let endpoints: Vec<String> =
            clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let cell = Self { endpoints, nodes, _folder: folder };
        for endpoint in &cell.endpoints {
            await_service(endpoint, Dialect::Paxoslease)
                .with_context(|| cell.nodes.iter().map(Process::said).collect::<String>())?;
        }
        Ok(cell)
    }
}

impl Server for Cell {
    fn processes(&self) -> &[Process] {
        &self.nodes
    }
}

/// The binary that was built with this one.
fn beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("paxoslease");
    ensure!(path.is_file(), "no {}; build it: cargo build --release", path.display());
    Ok(path)
}

/// Waits until a lease can be taken and released there.
fn await_service(endpoint: &str, dialect: Dialect) -> Result<()> {
    let began_at = now();
    let mut plan = Plan::new([endpoint], Workload::Pairs);
    (plan.dialect, plan.extent, plan.warmup) = (dialect, Extent::Count(1), Duration::ZERO);
    (plan.in_flight, plan.connections) = (1, 1);
    loop {
        let problem = match paxoslease_load::run(&plan, &mut |_| {}) {
            Ok(report) if report.operations == 1 => return Ok(()),
            Ok(report) => report.last_error.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        if began_at.elapsed() >= READY_MAX {
            bail!("{endpoint} did not come up: {problem}");
        }
        sleep(Duration::from_millis(10));
    }
}

/// Ports where nobody listened a moment ago.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    for _ in 0..N {
        listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// One process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// How long it ran so far, in user and kernel mode.
    fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .with_context(|| format!("a process is gone: {}", self.said()))?;
        // What follows the name, which may itself hold anything.
        let fields = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace();
        let ticks: Vec<&str> = fields.skip(11).take(2).collect();
        let ticks: u64 = ticks.iter().map(|ticks| ticks.parse().unwrap_or(0)).sum::<u64>();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// The end of what it wrote.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Result<Self> {
        let name = format!("paxoslease-bench-{}-{what}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
