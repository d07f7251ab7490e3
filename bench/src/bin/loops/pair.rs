//! Two processes that talk over the loopback interface, each on a core of its own: this program,
//! started twice more. Fresh ones for every sample, so that none inherits a heap or a history.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_bench::clock::{now, process_time};
use paxoslease_bench::cores;
use serde_json::{Value, json};

use crate::link::Link;
use crate::{Conn, Loop};

const CONNECTIONS: usize = 4;
/// How long each sample asks.
const SPAN: Duration = Duration::from_millis(500);

/// What one conversation was like.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    /// Of both processes together.
    pub(crate) cpu_micros_per_request: f64,
}

#[derive(clap::Args)]
pub(crate) struct Ask {
    #[arg(value_enum)]
    kind: Loop,
    address: SocketAddr,
    in_flight: usize,
    #[arg(long)]
    core: Option<usize>,
}

/// Starts both processes and puts together what they say.
pub(crate) fn measure(kind: Loop, in_flight: usize) -> Result<Sample> {
    let cores = cores::all();
    let process = |task: &str, core: usize| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([task, kind.name()]).stdout(Stdio::piped());
        if cores.len() > 1 {
            command.arg("--core").arg(cores[core].to_string());
        }
        Ok(command)
    };
    let mut server = process("serve", 1)?.spawn()?;
    let mut said = BufReader::new(server.stdout.take().expect("it was piped")).lines();
    let mut next = || said.next().context("the server ended early")?.context("it wrote no text");
    let address = next()?;
    let client = process("ask", 0)?.args([address, in_flight.to_string()]).output()?;
    ensure!(client.status.success(), "{}: {}", client.status, text(&client.stderr));
    let client: Value = serde_json::from_slice(&client.stdout)?;
    let server_cpu: f64 = next()?.parse()?;
    ensure!(server.wait()?.success(), "the server failed");
    let figure = |key: &str| client[key].as_f64().with_context(|| format!("no {key}"));
    let requests = figure("requests")?;
    Ok(Sample {
        requests_per_second: requests / figure("seconds")?,
        p50_micros: figure("p50_micros")?,
        p99_micros: figure("p99_micros")?,
        cpu_micros_per_request: (figure("cpu_seconds")? + server_cpu) * 1e6 / requests,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// The server's process: until the client closes its connections.
pub(crate) fn serve(kind: Loop, core: Option<usize>) -> Result<()> {
    core.map_or(Ok(()), cores::stay_on)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let mut conns = Vec::new();
    for _ in 0..CONNECTIONS {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        conns.push(Conn { stream, link: Link::answering() });
    }
    let ran = process_time();
    kind.run(conns)?;
    println!("{}", (process_time() - ran).as_secs_f64());
    Ok(())
}

impl Ask {
    /// The client's process: for a while.
    pub(crate) fn run(self) -> Result<()> {
        self.core.map_or(Ok(()), cores::stay_on)?;
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let (ran, begun_at) = (process_time(), now());
        let mut conns = Vec::new();
        for (index, stream) in streams.iter().enumerate() {
            // The first connections take what does not divide; one in flight is on the first.
            let share = (self.in_flight + CONNECTIONS - 1 - index) / CONNECTIONS;
            let link = Link::asking(share, begun_at, begun_at + SPAN);
            // The streams here outlive the loop, so that idle ones stay open with every loop.
            conns.push(Conn { stream: stream.try_clone()?, link });
        }
        let links = self.kind.run(conns)?;
        let (took, ran) = (now() - begun_at, process_time() - ran);
        let (mut requests, mut round_trips) = (0, Vec::new());
        for (answers, took) in links.into_iter().filter_map(Link::into_answers) {
            requests += answers;
            round_trips.extend(took);
        }
        round_trips.sort_unstable();
        let micros = |share: f64| {
            let at = (round_trips.len() as f64 * share) as usize;
            round_trips.get(at).map(|took| took.as_secs_f64() * 1e6)
        };
        let figures = json!({
            "requests": requests,
            "seconds": took.as_secs_f64(),
            "cpu_seconds": ran.as_secs_f64(),
            "p50_micros": micros(0.5),
            "p99_micros": micros(0.99),
        });
        println!("{figures}");
        Ok(())
    }
}
