//! A connection between two nodes that can be cut without either end being told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::harness::listen;

pub(crate) struct Relay {
    pub(crate) address: String,
    there: Arc<Gate>,
    back: Arc<Gate>,
}

/// Stops one direction while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_closed = self.is_closed.lock().expect("no thread panics with it");
        drop(self.opened.wait_while(is_closed, |is_closed| *is_closed).expect("as above"));
    }

    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().expect("no thread panics with it") = is_closed;
        self.opened.notify_all();
    }
}

impl Relay {
    /// Forwards each connection to `to`.
    pub(crate) fn to(to: String) -> Self {
        let (listener, address) = listen();
        let relay = Self { address, there: Arc::default(), back: Arc::default() };
        let gates = [Arc::clone(&relay.there), Arc::clone(&relay.back)];
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&to) else { continue };
                let clone = |stream: &TcpStream| stream.try_clone().expect("room");
                let directions = [(clone(&near), clone(&far)), (far, near)];
                for ((from, to), gate) in directions.into_iter().zip(gates.clone()) {
                    thread::spawn(move || forward(from, to, &gate));
                }
            }
        });
        relay
    }

    /// Nothing passes any more, and no connection is closed.
    pub(crate) fn cut(&self) {
        self.there.set(true);
        self.back.set(true);
    }

    /// The node that dialled is still heard, and hears nothing.
    pub(crate) fn cut_back(&self) {
        self.back.set(true);
    }

    /// Everything passes again, bytes that were held back first.
    pub(crate) fn mend(&self) {
        self.there.set(false);
        self.back.set(false);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        gate.pass();
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    gate.pass();
    // The other direction ends by itself.
    let _gone = to.shutdown(Shutdown::Write);
}
