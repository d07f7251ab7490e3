//! A wire between two nodes that can be cut without either end being told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Relay {
    address: SocketAddr,
    gates: Arc<Gates>,
}

/// One for each direction.
#[derive(Default)]
struct Gates {
    there: Gate,
    back: Gate,
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
        let gates = Arc::new(Gates::default());
        let inner = Arc::clone(&gates);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&to) else { continue };
                let (near_too, far_too) = (near.try_clone(), far.try_clone());
                let (near_too, far_too) = (near_too.expect("room"), far_too.expect("room"));
                let (there, back) = (Arc::clone(&inner), Arc::clone(&inner));
                thread::spawn(move || forward(near, far, &there.there));
                thread::spawn(move || forward(far_too, near_too, &back.back));
            }
        });
        Self { address, gates }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Nothing passes any more, and no connection is closed.
    pub(crate) fn cut(&self) {
        self.gates.there.set(true);
        self.gates.back.set(true);
    }

    /// Whoever dialled is still heard, and hears nothing.
    pub(crate) fn cut_back(&self) {
        self.gates.back.set(true);
    }

    /// Everything passes again, what was held back first.
    pub(crate) fn mend(&self) {
        self.gates.there.set(false);
        self.gates.back.set(false);
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
