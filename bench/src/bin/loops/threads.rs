//! A thread per connection that blocks in its reads: the fewest system calls a round trip can do
//! with, and nothing that could be shared between connections.

use std::io::{Read, Write};
use std::thread;

use anyhow::Result;
use paxoslease_bench::clock::now;

use crate::Conn;
use crate::link::Link;

pub(crate) fn run(conns: Vec<Conn>) -> Result<Vec<Link>> {
    let threads: Vec<_> =
        conns.into_iter().map(|conn| thread::spawn(move || converse(conn))).collect();
    threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
}

fn converse(Conn { mut stream, mut link }: Conn) -> Result<Link> {
    loop {
        if !link.output().is_empty() {
            stream.write_all(link.output())?;
            link.sent(link.output().len());
        }
        if link.is_done() {
            return Ok(link);
        }
        match stream.read(link.room())? {
            0 => return Ok(link),
            len => link.received(len, now())?,
        }
    }
}
