//! A wire between two nodes that can be cut without either end being told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_closed = self.is_closed.lock().expect("nobody panics with it");
        drop(self.opened.wait_while(is_closed, |is_closed| *is_closed).expect("as above"));
    }

    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().expect("nobody panics with it") = is_closed;
        self.opened.notify_all();
    }
}

impl Relay {
    /// Whoever connects here is connected to `to`.
    pub(crate) fn to(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let gate = Arc::new(Gate::default());
        let inner = Arc::clone(&gate);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&to) else { continue };
                let back = (far.try_clone().expect("room"), near.try_clone().expect("room"));
                for (from, to) in [(near, far), back] {
                    let gate = Arc::clone(&inner);
                    thread::spawn(move || forward(from, to, &gate));
                }
            }
        });
        Self { address, gate }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Nothing passes any more, and no connection is closed.
    pub(crate) fn cut(&self) {
        self.gate.set(true);
    }

    /// Everything passes again, what was held back first.
    pub(crate) fn mend(&self) {
        self.gate.set(false);
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
