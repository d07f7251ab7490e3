//! Attacks by requests each of which is allowed: lists, pages, leases and probes without end.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use paxoslease_core::{Holder, Name};
use paxoslease_rig::clock::sleep;

use super::{Means, PACE, boot, crowd, stay};

/// Has a lease of each of these names be held for a minute, if it is not yet.
fn hold(means: &Means, names: impl Iterator<Item = String>, holder: &str) -> Result<()> {
    let mut stream = TcpStream::connect(&means.clients)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let names: Vec<String> = names.collect();
    for some in names.chunks(100) {
        for name in some {
            let acquire = ["LEASE.ACQUIRE", name, "60000", "HOLDER", holder];
            stream.write_all(command(&acquire).as_bytes())?;
        }
        stream.write_all(b"PING\r\n")?;
        let mut line = String::new();
        while line != "+PONG\r\n" {
            line.clear();
            anyhow::ensure!(replies.read_line(&mut line)? > 0, "it hung up");
        }
    }
    Ok(())
}

/// As RESP has it, whatever bytes there are in it.
fn command(args: &[&str]) -> String {
    let count = format!("*{}\r\n", args.len());
    args.iter().fold(count, |command, arg| command + &format!("${}\r\n{arg}\r\n", arg.len()))
}

/// A thousand leases that take as much room as can be: JSON makes six bytes of each of theirs.
fn hold_longest(means: &Means) -> Result<()> {
    let name = |number| format!("{number:\u{1}<len$}", len = Name::LEN_MAX);
    hold(means, (0..1000).map(name), &"\u{1}".repeat(Holder::LEN_MAX))
}

pub(super) fn lists(means: &Means) -> Result<()> {
    const ASK: &[u8] = b"LEASE.LIST 0 COUNT 1000\r\nPING\r\n";
    hold(means, (0..20_000).map(|number| format!("listed/{number}")), "holder")?;
    let mut streams = crowd(&means.clients, 100, ASK)?;
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    means.in_place();
    let mut heard = vec![0; 1 << 16];
    while means.goes_on() {
        let mut idle = true;
        for stream in &mut streams {
            match stream.read(&mut heard) {
                Ok(0) => anyhow::bail!("it hung up"),
                // The end of what was asked for.
                Ok(len) if heard[..len].ends_with(b"+PONG\r\n") => {
                    stream.write_all(ASK)?;
                    means.did(1);
                    idle = false;
                }
                Ok(_) => idle = false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if idle {
            sleep(PACE);
        }
    }
    Ok(())
}

pub(super) fn unread_lists(means: &Means) -> Result<()> {
    hold_longest(means)?;
    let lists = b"LEASE.LIST 0 COUNT 1000\r\n".repeat(12);
    let streams = crowd(&means.clients, 60, &lists)?;
    means.did(streams.len() as u64);
    stay(means, streams);
    Ok(())
}

fn ask_for_pages(means: &Means) -> Result<Vec<TcpStream>> {
    hold_longest(means)?;
    let page = format!("GET /v1/leases?limit=1000 HTTP/1.1\r\nhost: {}\r\n\r\n", means.http);
    Ok(crowd(&means.http, 100, page.as_bytes())?)
}

pub(super) fn unread_pages(means: &Means) -> Result<()> {
    let streams = ask_for_pages(means)?;
    means.did(streams.len() as u64);
    stay(means, streams);
    Ok(())
}

pub(super) fn slow_readers(means: &Means) -> Result<()> {
    let mut streams = ask_for_pages(means)?;
    let pace = Duration::from_secs(1) / streams.len() as u32;
    means.in_place();
    while means.goes_on() {
        for stream in &mut streams {
            // Those that were given up are gone.
            let heard = stream.read(&mut [0]).unwrap_or(0);
            means.did(heard as u64);
            sleep(pace);
        }
    }
    Ok(())
}

/// Other names each time, so that the node keeps more and more of them.
pub(super) fn leases(means: &Means) -> Result<()> {
    const AT_ONCE: u64 = 20;
    let first = boot() << 32;
    let holder = "h".repeat(Holder::LEN_MAX);
    means.in_place();
    for start in (first..).step_by(AT_ONCE as usize) {
        if !means.goes_on() {
            break;
        }
        let name = |number| format!("{number:n<len$}", len = Name::LEN_MAX);
        hold(means, (start..start + AT_ONCE).map(name), &holder)?;
        means.did(AT_ONCE);
        sleep(PACE);
    }
    Ok(())
}

pub(super) fn probes(means: &Means) -> Result<()> {
    let wait = b"LEASE.ACQUIRE hostile 1000 WAIT 60000\r\n".repeat(900);
    let waiting = crowd(&means.clients, 10, &wait)?;
    let probe = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", means.http);
    let mut streams = crowd(&means.http, 10, probe.as_bytes())?;
    means.in_place();
    let mut answer = [0; 4096];
    while means.goes_on() {
        for stream in &mut streams {
            anyhow::ensure!(stream.read(&mut answer)? > 0, "it hung up");
            stream.write_all(probe.as_bytes())?;
            means.did(1);
        }
    }
    drop(waiting);
    Ok(())
}
