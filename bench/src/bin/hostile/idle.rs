//! The memory of a connection that was used once and is idle then: over RESP and HTTP, with and
//! without TLS.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Error, Result, ensure};
use paxoslease_bench::peers::{Ours, OursSettings, Service as _};
use paxoslease_client::Tls;
use rustls::StreamOwned;

use crate::figure;

const KIB: f64 = 1024.0;

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

pub(crate) fn measure(settings: &OursSettings, count: usize) -> Result<()> {
    println!("{count} idle connections (goal: at most 20 KiB each)");
    for (what, exchange, by_http, has_tls) in [
        ("after a short answer", SHORT, false, false),
        ("after a long answer", LONG, false, false),
        ("with TLS, after a short answer", SHORT, false, true),
        ("with TLS, after a long answer", LONG, false, true),
        ("by HTTP", BY_HTTP, true, false),
        ("by HTTP, with TLS", BY_HTTP, true, true),
    ] {
        let (nodes, tls) = (1, has_tls.then_some("server"));
        // The other port is off: the limit of open files would be shared.
        let (has_clients, has_http) = (!by_http, by_http);
        let settings = settings.clone();
        let cell = Ours::start(OursSettings { nodes, has_clients, has_http, tls, ..settings })?;
        let (node, tls) = (&cell.members()[0], cell.tls()?);
        let address = if by_http { cell.http_endpoints() } else { cell.endpoints() }.swap_remove(0);
        let connect_many = |count: usize| -> Result<Vec<_>> {
            (0..count).map(|_| connect(&address, tls.as_ref(), exchange)).collect()
        };
        // Makes the buffers that all connections share.
        let few = connect_many(100)?;
        let before = node.rss()?;
        let many = connect_many(count)?;
        let each = (node.rss()? as f64 - before as f64) / count as f64 / KIB;
        drop((few, many));
        figure(&format!("of each, {what}"), each, "KiB");
    }
    println!();
    Ok(())
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection that has made this exchange.
fn connect(
    address: &str,
    tls: Option<&Tls>,
    Exchange { request, end }: Exchange,
) -> Result<Box<dyn Stream>> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = match tls {
        None => Box::new(tcp),
        Some(tls) => Box::new(StreamOwned::new(tls.connection(address).map_err(Error::msg)?, tcp)),
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
