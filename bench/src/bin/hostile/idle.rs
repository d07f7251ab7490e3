//! The memory of a connection that was used once and is idle then: over RESP and HTTP, with and
//! without TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Error, Result, ensure};
use paxoslease_client::Tls;
use paxoslease_rig::clock::{now, sleep};
use paxoslease_rig::{Certificates, Folder, Process, free_ports, paxoslease_beside_this};
use rustls::StreamOwned;

use crate::figure;

const KIB: f64 = 1024.0;
const READY_MAX: Duration = Duration::from_secs(20);

const SHORT: Exchange = Exchange { request: "PING\r\n", end: "+PONG\r\n" };
/// Has the longest reply of all commands that need no permission.
const LONG: Exchange = Exchange { request: "COMMAND DOCS\r\nPING\r\n", end: "+PONG\r\n" };
const BY_HTTP: Exchange = Exchange {
    request: "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    end: r#"{"status":"ok"}"#,
};

/// A request, and the end of its reply.
#[derive(Clone, Copy)]
struct Exchange {
    request: &'static str,
    end: &'static str,
}

pub(crate) fn measure(count: usize) -> Result<()> {
    println!("{count} idle connections (goal: at most 20 KiB each)");
    for (what, port, tls, exchange) in [
        ("after a short answer", Port::Resp, false, SHORT),
        ("after a long answer", Port::Resp, false, LONG),
        ("with TLS, after a short answer", Port::Resp, true, SHORT),
        ("with TLS, after a long answer", Port::Resp, true, LONG),
        ("by HTTP", Port::Http, false, BY_HTTP),
        ("by HTTP, with TLS", Port::Http, true, BY_HTTP),
    ] {
        let node = Node::start(port, tls, exchange)?;
        // Makes the buffers that all connections share.
        let few = node.connect_many(100, exchange)?;
        let before = node.process.rss()?;
        let many = node.connect_many(count, exchange)?;
        let each = (node.process.rss()? as f64 - before as f64) / count as f64 / KIB;
        drop((few, many));
        figure(&format!("of each, {what}"), each, "KiB");
    }
    println!();
    Ok(())
}

/// The port that the node listens on; the other one is off.
#[derive(Clone, Copy)]
enum Port {
    Resp,
    Http,
}

/// A cell of one node.
struct Node {
    process: Process,
    address: String,
    tls: Option<Tls>,
    _folder: Folder,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Node {
    fn start(port: Port, tls: bool, exchange: Exchange) -> Result<Self> {
        let (binary, folder) = (paxoslease_beside_this()?, Folder::new("idle")?);
        let [peers, clients] = free_ports()?;
        let address = format!("127.0.0.1:{clients}");
        let mut command = Command::new(&binary);
        command.args(["serve", "--with-parent", "--new-cell", "--shards", "1", "--node", "1"]);
        command.args(["--peer", &format!("1=127.0.0.1:{peers}"), "--limit", "connections=15000"]);
        let (used, other) = match port {
            Port::Resp => ("--listen-clients", "--listen-http"),
            Port::Http => ("--listen-http", "--listen-clients"),
        };
        command.args([used, &address, other, "off"]);
        command.arg("--data-dir").arg(folder.join("data"));
        let mut settings = None;
        if tls {
            let folder = folder.join("certs");
            let certificates = Certificates::make(&binary, "default", 1, folder)?;
            certificates.add_options(&mut command, 1, "server");
            settings = Some(Tls::from_ca_file(certificates.authority())?);
        }
        let process = Process::spawn(command, &folder.join("log"))?;
        let node = Self { process, address, tls: settings, _folder: folder };
        let began_at = now();
        while let Err(error) = node.connect_many(1, exchange) {
            ensure!(began_at.elapsed() < READY_MAX, "{error:#}: {}", node.process.log_tail());
            sleep(Duration::from_millis(10));
        }
        Ok(node)
    }

    /// Connections that have each made this exchange.
    fn connect_many(&self, count: usize, exchange: Exchange) -> Result<Vec<Box<dyn Stream>>> {
        (0..count).map(|_| self.connect(exchange)).collect()
    }

    fn connect(&self, Exchange { request, end }: Exchange) -> Result<Box<dyn Stream>> {
        let tcp = TcpStream::connect(&self.address)?;
        tcp.set_nodelay(true)?;
        let tls = self.tls.as_ref().map(|tls| tls.connection(&self.address));
        let mut stream: Box<dyn Stream> = match tls.transpose().map_err(Error::msg)? {
            None => Box::new(tcp),
            Some(tls) => Box::new(StreamOwned::new(tls, tcp)),
        };
        stream.write_all(request.as_bytes())?;
        let (mut reply, mut bytes) = (Vec::new(), [0; 16 * 1024]);
        while !reply.ends_with(end.as_bytes()) {
            let len = stream.read(&mut bytes)?;
            ensure!(len > 0, "closed after {:?}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&bytes[..len]);
        }
        Ok(stream)
    }
}
