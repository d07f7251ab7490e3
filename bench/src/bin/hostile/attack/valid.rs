//! Attacks by valid requests: lists, pages, leases and probes without end.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use paxoslease_core::{Holder, Name};
use paxoslease_rig::clock::sleep;
use paxoslease_wire::resp::put_command;

use super::{Attacker, INTERVAL, boot, connect_many};

/// Acquires a lease of a minute for each of these names, unless it is held.
fn hold(attacker: &Attacker, names: impl Iterator<Item = String>, holder: &str) -> Result<()> {
    let mut stream = TcpStream::connect(&attacker.clients)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let names: Vec<String> = names.collect();
    for some in names.chunks(100) {
        for name in some {
            let acquire = ["LEASE.ACQUIRE", name, "60000", "HOLDER", holder].map(str::as_bytes);
            let mut command = Vec::new();
            put_command(&mut command, &acquire);
            stream.write_all(&command)?;
        }
        stream.write_all(b"PING\r\n")?;
        let mut line = String::new();
        while line != "+PONG\r\n" {
            line.clear();
            ensure!(replies.read_line(&mut line)? > 0, "the node closed the connection");
        }
    }
    Ok(())
}

/// Holds a thousand leases of the longest texts: JSON makes six bytes of each of their characters.
fn hold_longest(attacker: &Attacker) -> Result<()> {
    let name = |number| format!("{number:\u{1}<len$}", len = Name::LEN_MAX);
    hold(attacker, (0..1000).map(name), &"\u{1}".repeat(Holder::LEN_MAX))
}

pub(super) fn lists(attacker: &Attacker) -> Result<()> {
    const LIST: &[u8] = b"LEASE.LIST 0 COUNT 1000\r\nPING\r\n";
    hold(attacker, (0..20_000).map(|number| format!("listed/{number}")), "holder")?;
    let mut streams = connect_many(&attacker.clients, 100, LIST)?;
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    let mut bytes = vec![0; 1 << 16];
    attacker.repeat(Duration::ZERO, |_| {
        let (mut is_idle, mut lists) = (true, 0);
        for stream in &mut streams {
            match stream.read(&mut bytes) {
                Ok(0) => bail!("the node closed the connection"),
                Ok(len) => {
                    is_idle = false;
                    if bytes[..len].ends_with(b"+PONG\r\n") {
                        stream.write_all(LIST)?;
                        lists += 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if is_idle {
            sleep(INTERVAL);
        }
        Ok(lists)
    })
}

pub(super) fn unread_lists(attacker: &Attacker) -> Result<()> {
    hold_longest(attacker)?;
    let lists = b"LEASE.LIST 0 COUNT 1000\r\n".repeat(12);
    attacker.keep(connect_many(&attacker.clients, 60, &lists)?, 1)
}

fn request_pages(attacker: &Attacker) -> Result<Vec<TcpStream>> {
    hold_longest(attacker)?;
    let page = format!("GET /v1/leases?limit=1000 HTTP/1.1\r\nhost: {}\r\n\r\n", attacker.http);
    Ok(connect_many(&attacker.http, 100, page.as_bytes())?)
}

pub(super) fn unread_pages(attacker: &Attacker) -> Result<()> {
    attacker.keep(request_pages(attacker)?, 1)
}

pub(super) fn slow_readers(attacker: &Attacker) -> Result<()> {
    let mut streams = request_pages(attacker)?;
    let count = streams.len();
    attacker.repeat(Duration::from_secs(1) / count as u32, |number| {
        // The node may have closed the connection.
        Ok(streams[number % count].read(&mut [0]).unwrap_or(0) as u64)
    })
}

/// Uses new names each time, so that the node keeps more and more of them.
pub(super) fn leases(attacker: &Attacker) -> Result<()> {
    const AT_ONCE: u64 = 20;
    let first = boot() << 32;
    let holder = "h".repeat(Holder::LEN_MAX);
    attacker.repeat(INTERVAL, |number| {
        let start = first + AT_ONCE * number as u64;
        let name = |number| format!("{number:n<len$}", len = Name::LEN_MAX);
        hold(attacker, (start..start + AT_ONCE).map(name), &holder)?;
        Ok(AT_ONCE)
    })
}

pub(super) fn probes(attacker: &Attacker) -> Result<()> {
    let wait = b"LEASE.ACQUIRE hostile 1000 WAIT 60000\r\n".repeat(900);
    let _waiting = connect_many(&attacker.clients, 10, &wait)?;
    let probe = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", attacker.http);
    let mut streams = connect_many(&attacker.http, 10, probe.as_bytes())?;
    let mut reply = [0; 4096];
    attacker.repeat(Duration::ZERO, |_| {
        for stream in &mut streams {
            ensure!(stream.read(&mut reply)? > 0, "the node closed the connection");
            stream.write_all(probe.as_bytes())?;
        }
        Ok(streams.len() as u64)
    })
}
