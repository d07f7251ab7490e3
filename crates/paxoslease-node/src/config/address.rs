//! The form of an address, `host:port`.
//!
//! Only the form: names are resolved at every attempt to connect or listen, so that a node that
//! moved is found again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV6};

use thiserror::Error;

use super::{ConfigError, Listen};

/// Why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no port.
    #[error("it has no port; write host:port, such as 10.0.0.1:7401")]
    NoPort,
    /// The port is not a number, or too large.
    #[error("the port is not a number from 0 to 65535; write host:port, such as 10.0.0.1:7401")]
    Port,
    /// Peers connect to it, and port 0 cannot be connected to.
    #[error("peers cannot connect to port 0; give the port that the node listens on")]
    PortZero,
    /// There is no host.
    #[error("it has no host; write host:port, such as 10.0.0.1:7401 or 0.0.0.0:7401")]
    NoHost,
    /// The host is neither a name nor an IP address.
    #[error("the host is neither a name nor an IP address; write it without scheme or path")]
    Host,
    /// An IPv6 address without its brackets, or with bad ones.
    #[error("an IPv6 address goes in brackets, with a port behind, such as [::1]:7401")]
    Ipv6,
    /// Peers connect to it, and the unspecified address cannot be connected to.
    #[error(
        "peers cannot connect to the unspecified address; give one that they can reach, and \
             listen on this one by `listen.peers`"
    )]
    Unspecified,
}

/// A host and a port, spelt in one way, for comparing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Address {
    host: Host,
    port: u16,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Host {
    Ip(IpAddr, u32),
    Name(String),
}

impl Address {
    /// Reads an address to listen on: any port, and any host.
    fn parse(text: &str) -> Result<Self, AddressError> {
        if text.starts_with('[') {
            let address: SocketAddrV6 = text.parse().map_err(|_| AddressError::Ipv6)?;
            let host = Host::Ip(IpAddr::V6(*address.ip()), address.scope_id());
            return Ok(Self { host, port: address.port() });
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
        if host.contains(':') && !host.contains('/') {
            return Err(AddressError::Ipv6);
        }
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !host.chars().all(is_host) {
            return Err(AddressError::Host);
        }
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let port = Some(port).filter(|port| is_port(port)).and_then(|port| port.parse().ok());
        let port = port.ok_or(AddressError::Port)?;
        let host = match host.parse::<Ipv4Addr>() {
            _ if host.is_empty() => return Err(AddressError::NoHost),
            Ok(ip) => Host::Ip(IpAddr::V4(ip), 0),
            Err(_) => Host::Name(host.to_ascii_lowercase()),
        };
        Ok(Self { host, port })
    }

    /// Whether what is sent there stays on this machine, as far as its spelling tells.
    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip, _) => ip.to_canonical().is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }

    /// Reads an address that others connect to.
    fn parse_peer(text: &str) -> Result<Self, AddressError> {
        let address = Self::parse(text)?;
        if address.port == 0 {
            return Err(AddressError::PortZero);
        }
        if matches!(address.host, Host::Ip(ip, _) if ip.is_unspecified()) {
            return Err(AddressError::Unspecified);
        }
        Ok(address)
    }
}

/// An address and the key that sets it, such as `listen.http`.
#[derive(Clone, Debug)]
pub struct KeyedAddress<'a> {
    key: String,
    address: &'a str,
}

impl<'a> KeyedAddress<'a> {
    /// The address may still be malformed.
    pub fn new(key: impl Into<String>, address: &'a str) -> Self {
        Self { key: key.into(), address }
    }
}

/// Checks addresses that one program listens on: each must have the form of an address or be
/// [`Listen::OFF`], and no two may be the same.
///
/// # Errors
/// Names the first address that is malformed or already taken.
pub fn check_listen<'a>(
    addresses: impl IntoIterator<Item = KeyedAddress<'a>>,
) -> Result<(), ConfigError> {
    let on = addresses.into_iter().filter(|listen| listen.address != Listen::OFF);
    check_distinct(on, Address::parse)
}

/// Checks the addresses of the members. No two may be the same.
pub(super) fn check_members<'a>(
    addresses: impl IntoIterator<Item = KeyedAddress<'a>>,
) -> Result<(), ConfigError> {
    check_distinct(addresses, Address::parse_peer)
}

fn check_distinct<'a>(
    addresses: impl IntoIterator<Item = KeyedAddress<'a>>,
    parse: fn(&str) -> Result<Address, AddressError>,
) -> Result<(), ConfigError> {
    let mut taken = BTreeMap::new();
    for KeyedAddress { key, address } in addresses {
        let parsed = match parse(address) {
            Ok(parsed) => parsed,
            Err(error) => {
                return Err(ConfigError::Address { key, address: address.to_owned(), error });
            }
        };
        // Port 0 is another free port each time.
        if parsed.port != 0
            && let Some(first) = taken.insert(parsed, key.clone())
        {
            let address = address.to_owned();
            return Err(ConfigError::SameAddress { first, second: key, address });
        }
    }
    Ok(())
}

/// Checks that what is sent in clear to these addresses stays on this machine.
///
/// # Errors
/// Names the first address that is not a loopback address; `remedy` says how to encrypt.
pub fn check_loopback<'a>(
    addresses: impl IntoIterator<Item = KeyedAddress<'a>>,
    remedy: &'static str,
) -> Result<(), ConfigError> {
    let leaves = |at: &KeyedAddress<'_>| {
        !Address::parse(at.address).is_ok_and(|address| address.is_loopback())
    };
    match addresses.into_iter().find(leaves) {
        None => Ok(()),
        Some(KeyedAddress { key, address }) => {
            Err(ConfigError::Plaintext { key, address: address.to_owned(), remedy })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_both_kinds_are_addresses() {
        for text in ["10.0.0.1:7401", "[::1]:7401", "[fe80::1%2]:1", "node-1.cell_a.example:65535"]
        {
            assert!(Address::parse_peer(text).is_ok(), "{text}");
        }
        for text in ["0.0.0.0:7401", "[::]:7401", "localhost:0"] {
            assert!(Address::parse(text).is_ok() && Address::parse_peer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        use AddressError as E;
        let cases = [
            ("10.0.0.1", E::NoPort),
            ("", E::NoPort),
            ("host:", E::Port),
            ("host:+1", E::Port),
            ("host:65536", E::Port),
            ("host:http", E::Port),
            (":7401", E::NoHost),
            ("http://host:7401", E::Host),
            ("a host:7401", E::Host),
            ("::1:7401", E::Ipv6),
            ("[::1]", E::Ipv6),
            ("[host]:7401", E::Ipv6),
            ("0.0.0.0:7401", E::Unspecified),
            ("[::]:7401", E::Unspecified),
            ("host:0", E::PortZero),
        ];
        for (text, error) in cases {
            assert_eq!(Address::parse_peer(text), Err(error), "{text}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is_loopback = |text| Address::parse(text).expect("an address").is_loopback();
        for text in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "LocalHost:1"]
        {
            assert!(is_loopback(text), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1", "localhost.x:1"] {
            assert!(!is_loopback(text), "{text}");
        }
    }

    #[test]
    fn one_address_spelt_in_two_ways_is_one() {
        assert_eq!(Address::parse("[::1]:1"), Address::parse("[0:0::0:1]:1"));
        assert_eq!(Address::parse("Node.Example:1"), Address::parse("node.example:1"));
        assert_ne!(Address::parse("[fe80::1%2]:1"), Address::parse("[fe80::1%3]:1"));
    }
}
