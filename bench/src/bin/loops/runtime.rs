//! Tokio's runtime on one thread, with a task per connection: what one would write without a loop
//! of one's own. Each task works off all that one read brought, and answers with one write.

use anyhow::Result;
use paxoslease_bench::clock::now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use crate::Conn;
use crate::link::Link;

pub(crate) fn run(conns: Vec<Conn>) -> Result<Vec<Link>> {
    Builder::new_current_thread().enable_io().build()?.block_on(async {
        let tasks: Vec<_> = conns.into_iter().map(|conn| tokio::spawn(converse(conn))).collect();
        let mut links = Vec::new();
        for task in tasks {
            links.push(task.await??);
        }
        Ok(links)
    })
}

async fn converse(Conn { stream, mut link }: Conn) -> Result<Link> {
    stream.set_nonblocking(true)?;
    let mut stream = TcpStream::from_std(stream)?;
    loop {
        if !link.output().is_empty() {
            stream.write_all(link.output()).await?;
            link.sent(link.output().len());
        }
        if link.is_done() {
            return Ok(link);
        }
        match stream.read(link.room()).await? {
            0 => return Ok(link),
            len => link.received(len, now())?,
        }
    }
}
