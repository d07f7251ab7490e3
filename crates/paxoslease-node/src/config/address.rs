//! The form of an address, `host:port`. `tests/config.txt` has examples.
//!
//! Names are not resolved here, but at every attempt to connect or listen, so that a node that
//! moved is found again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV6};
use std::sync::Arc;

use thiserror::Error;

use super::{ConfigError, Listen};

/// Why a text is not an address, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct AddressError(&'static str);

const IPV6: AddressError =
    AddressError("an IPv6 address goes in brackets, with a port behind, such as [::1]:7401");

/// A host and a port in a normal form, so that they can be compared.
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
            let address: SocketAddrV6 = text.parse().map_err(|_| IPV6)?;
            let host = Host::Ip(IpAddr::V6(*address.ip()), address.scope_id());
            return Ok(Self { host, port: address.port() });
        }
        let no_port = AddressError("it has no port; write host:port, such as 10.0.0.1:7401");
        let (host, port) = text.rsplit_once(':').ok_or(no_port)?;
        if host.contains(':') && !host.contains('/') {
            return Err(IPV6);
        }
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !host.chars().all(is_host) {
            return Err(AddressError(
                "the host is neither a name nor an IP address; write it without scheme or path",
            ));
        }
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let port = Some(port).filter(|port| is_port(port)).and_then(|port| port.parse().ok());
        let port = port.ok_or(AddressError(
            "the port is not a number from 0 to 65535; write host:port, such as 10.0.0.1:7401",
        ))?;
        let host = match host.parse::<Ipv4Addr>() {
            _ if host.is_empty() => {
                return Err(AddressError(
                    "it has no host; write host:port, such as 10.0.0.1:7401 or 0.0.0.0:7401",
                ));
            }
            Ok(ip) => Host::Ip(IpAddr::V4(ip), 0),
            Err(_) => Host::Name(host.to_ascii_lowercase()),
        };
        Ok(Self { host, port })
    }

    /// Whether bytes sent there stay on this machine, as far as the text tells.
    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip, _) => ip.to_canonical().is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }

    /// Reads an address that other nodes connect to.
    fn parse_peer(text: &str) -> Result<Self, AddressError> {
        let address = Self::parse(text)?;
        if address.port == 0 {
            return Err(AddressError(
                "peers cannot connect to port 0; give the port that the node listens on",
            ));
        }
        if matches!(address.host, Host::Ip(ip, _) if ip.is_unspecified()) {
            return Err(AddressError(
                "peers cannot connect to the unspecified address; give one that they can reach, \
                 and listen on this one by `listen.peers`",
            ));
        }
        Ok(address)
    }
}

/// The address of a member, as an administrator wrote it: other nodes can connect to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerAddress(Arc<str>);

impl PeerAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, AddressError> {
        Address::parse_peer(text).map(|_| Self(text.into()))
    }

    pub(crate) fn into_text(self) -> Arc<str> {
        self.0
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

/// Checks that bytes in clear for these addresses stay on this machine.
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
