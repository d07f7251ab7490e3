//! Ports that the system gives to no other process.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Result;

/// Ports on which no process listens. For a minute the system gives them only to a process that
/// asks for them by number.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = reserved_port()?;
    }
    Ok(ports)
}

/// The side that ends a connection keeps it in TIME_WAIT for a while, which reserves its port.
fn reserved_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    drop(server);
    drop(client);
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn free_ports_are_free_and_different() {
        let ports: BTreeSet<u16> =
            (0..100).flat_map(|_| free_ports::<9>().expect("there are enough")).collect();
        assert_eq!(ports.len(), 900);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        }
    }
}
