//! What a connection costs a node that was used once and then says nothing: by RESP and HTTP, in
//! clear and with TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_rig::clock::{now, sleep};
use paxoslease_rig::{Certificates, Folder, Process, free_ports, paxoslease_beside_this};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::Section;

const KIB: f64 = 1024.0;
const READY_MAX: Duration = Duration::from_secs(20);

/// Says little and hears little.
const SHORT: (&str, &str) = ("PING\r\n", "+PONG\r\n");
/// Hears the longest answer that anybody may ask for, and takes it all.
const LONG: (&str, &str) = ("COMMAND DOCS\r\nPING\r\n", "+PONG\r\n");
const BY_HTTP: (&str, &str) =
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", r#"{"status":"ok"}"#);

pub(crate) fn measure(count: usize) -> Result<Section> {
    let mut section = Section::new(format!(
        "{count} connections that say nothing more (goal: at most 20 KiB each)"
    ));
    for (what, door, tls, (ask, answer)) in [
        ("after a short answer", Door::Resp, false, SHORT),
        ("after a long answer", Door::Resp, false, LONG),
        ("with TLS, after a short answer", Door::Resp, true, SHORT),
        ("with TLS, after a long answer", Door::Resp, true, LONG),
        ("by HTTP", Door::Http, false, BY_HTTP),
        ("by HTTP, with TLS", Door::Http, true, BY_HTTP),
    ] {
        let node = Node::start(door, tls, (ask, answer))?;
        // Buffers that are there for all of them.
        let few = node.used(100, ask, answer)?;
        let before = node.process.rss()?;
        let many = node.used(count, ask, answer)?;
        let each = (node.process.rss()? as f64 - before as f64) / count as f64 / KIB;
        drop((few, many));
        section.figure(format!("of each, {what}"), each, "KiB");
    }
    Ok(section)
}

/// Which port is used; nobody listens at the other.
#[derive(Clone, Copy)]
enum Door {
    Resp,
    Http,
}

/// A cell of one.
struct Node {
    process: Process,
    address: String,
    /// Whom to trust, where it speaks TLS.
    trust: Option<Arc<ClientConfig>>,
    _folder: Folder,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Node {
    fn start(door: Door, tls: bool, (ask, answer): (&str, &str)) -> Result<Self> {
        let (binary, folder) = (paxoslease_beside_this()?, Folder::new("idle")?);
        let [peers, clients] = free_ports()?;
        let address = format!("127.0.0.1:{clients}");
        let mut command = Command::new(&binary);
        command.args(["serve", "--with-parent", "--new-cell", "--shards", "1", "--node", "1"]);
        command.args(["--peer", &format!("1=127.0.0.1:{peers}"), "--limit", "connections=15000"]);
        let (used, other) = match door {
            Door::Resp => ("--listen-clients", "--listen-http"),
            Door::Http => ("--listen-http", "--listen-clients"),
        };
        command.args([used, &address, other, "off"]);
        command.arg("--data-dir").arg(folder.join("data"));
        let mut trust = None;
        if tls {
            let folder = folder.join("certs");
            let certificates = Certificates::make(&binary, "default", 1, folder)?;
            certificates.add_options(&mut command, 1, "server");
            trust = Some(crate::trust(&certificates)?);
        }
        let process = Process::spawn(command, &folder.join("log"))?;
        let node = Self { process, address, trust, _folder: folder };
        let began_at = now();
        while let Err(error) = node.used(1, ask, answer) {
            ensure!(began_at.elapsed() < READY_MAX, "{error:#}: {}", node.process.log_tail());
            sleep(Duration::from_millis(10));
        }
        Ok(node)
    }

    /// Connections that have asked something, and were answered.
    fn used(&self, count: usize, ask: &str, answer: &str) -> Result<Vec<Box<dyn Stream>>> {
        (0..count).map(|_| self.used_one(ask.as_bytes(), answer.as_bytes())).collect()
    }

    fn used_one(&self, ask: &[u8], answer: &[u8]) -> Result<Box<dyn Stream>> {
        let tcp = TcpStream::connect(&self.address)?;
        tcp.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = match &self.trust {
            None => Box::new(tcp),
            Some(trust) => {
                let name = ServerName::try_from("127.0.0.1")?;
                let connection = ClientConnection::new(Arc::clone(trust), name)?;
                Box::new(StreamOwned::new(connection, tcp))
            }
        };
        stream.write_all(ask)?;
        let (mut heard, mut bytes) = (Vec::new(), [0; 16 * 1024]);
        while !heard.ends_with(answer) {
            let len = stream.read(&mut bytes)?;
            ensure!(len > 0, "it hung up after {:?}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&bytes[..len]);
        }
        Ok(stream)
    }
}
