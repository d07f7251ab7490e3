//! `serve --probe`: asks the node that runs with this configuration whether it is alive or ready.
//!
//! The question goes to the node's own HTTP address, with its own certificate where TLS is on.
//! Probes need no token. So the configuration of the node is enough, and an image without a shell
//! has a health check. Deliberately absent: questions to other nodes, which `status` asks.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use paxoslease_client::Tls;
use paxoslease_server::{ClientTls, Config};
use rustls::StreamOwned;

use crate::args::Probe;
use crate::client::{Failure, UNAVAILABLE};
use crate::{Verdict, output};

/// A node that takes longer than this to connect, to read or to write has failed the probe. The
/// usual orchestrators allow a probe more time.
const PATIENCE: Duration = Duration::from_secs(2);

/// An answer has some hundred bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

pub(super) fn run(config: &Config, probe: Probe) -> anyhow::Result<Verdict> {
    let Some(listen) = config.listen.for_http() else {
        let why = "a probe asks the node over HTTP, and listen.http is \"off\"; set an address";
        return Err(Failure::usage(why).into());
    };
    let tls = tls(config)?;
    let failed = |error: io::Error| {
        let why = Tls::explain(&error).unwrap_or_else(|| error.to_string());
        Failure::new(UNAVAILABLE, format!("the node on {listen} does not answer: {why}"))
    };
    let (status, body) = ask(listen, tls.as_ref(), probe.path()).map_err(failed)?;
    if status != "200" {
        let why = format!("the node on {listen} answers {status}: {body}");
        return Err(Failure::new(UNAVAILABLE, why).into());
    }
    output::to_stdout(&format!("{body}\n"))?;
    Ok(Verdict::Well)
}

/// What a client of this node needs, from the node's own files.
fn tls(config: &Config) -> anyhow::Result<Option<Tls>> {
    let Some(files) = config.node.tls.as_ref().filter(|_| config.client_tls != ClientTls::Off)
    else {
        return Ok(None);
    };
    let node = &config.node;
    let name = paxoslease_node::Tls::node_name(&node.cell, node.node, node.role)?;
    let mut tls = Tls::from_ca_file(&files.ca)?.with_server_name(&name)?;
    if config.client_tls == ClientTls::Mutual {
        tls = tls.with_identity_files(&files.cert, &files.key)?;
    }
    Ok(Some(tls))
}

/// The status and the body of the answer. HTTP/1.0 has neither chunks nor a next request.
fn ask(listen: &str, tls: Option<&Tls>, path: &str) -> io::Result<(String, String)> {
    let tcp = connect(listen)?;
    let mut answer = Vec::new();
    let mut question = |mut stream: Box<dyn Stream>| {
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)
    };
    match tls {
        None => question(Box::new(tcp)),
        Some(tls) => {
            let tls = tls.connection(listen).map_err(io::Error::other)?;
            question(Box::new(StreamOwned::new(tls, tcp)))
        }
    }?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status.to_owned(), body.trim_end().to_owned()))
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn connect(listen: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in listen.to_socket_addrs()? {
        match TcpStream::connect_timeout(&reachable(address), PATIENCE) {
            Ok(tcp) => {
                tcp.set_read_timeout(Some(PATIENCE))?;
                tcp.set_write_timeout(Some(PATIENCE))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A node that listens on every address also listens on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
