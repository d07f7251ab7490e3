//! A server on a real socket that grants every request. It allocates nothing per request.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use paxoslease_wire::resp::{Protocol, Request, put_array, put_bulk, put_integer};

/// Starts the server on an address of its own. It counts requests, greetings included.
/// Closes every connection after this many requests.
pub(crate) fn server(requests_max: usize, asked: &Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let asked = Arc::clone(asked);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let asked = Arc::clone(&asked);
            thread::spawn(move || serve(stream, requests_max, &asked));
        }
    });
    address.to_string()
}

fn serve(mut stream: TcpStream, requests_max: usize, asked: &AtomicUsize) {
    let (mut input, mut len) = (vec![0; 64 * 1024], 0);
    let mut out = Vec::with_capacity(64 * 1024);
    let mut requests = 0;
    while let Ok(more) = stream.read(&mut input[len..]) {
        if more == 0 {
            return;
        }
        len += more;
        let mut read = 0;
        while let Some((request, len)) = Request::parse(&input[read..len]).expect("well formed") {
            if requests == requests_max {
                return;
            }
            answer(&request, &mut out);
            requests += 1;
            asked.fetch_add(1, Ordering::SeqCst);
            read += len;
        }
        input.copy_within(read..len, 0);
        len -= read;
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
    }
}

fn answer(request: &Request<'_>, out: &mut Vec<u8>) {
    match request.arg(0) {
        Some(b"HELLO") => {
            Protocol::Resp3.put_map(out, 1);
            put_bulk(out, b"server");
            put_bulk(out, b"paxoslease");
        }
        Some(b"LEASE.ACQUIRE") => {
            put_array(out, 3);
            [42, 15_000, 0].iter().for_each(|number| put_integer(out, *number));
        }
        _ => put_integer(out, 1),
    }
}
