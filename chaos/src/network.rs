//! The network between places, which are nodes and groups of clients. [`Conditions`] tell which
//! links are cut, how much is lost, and how late the rest arrives.
//!
//! Chooses between network namespaces ([`spaces`]) and plain loopback, which has no conditions, for
//! a machine without root. Deliberately lacks time: the harness sets all conditions at every
//! change.

pub mod relay;
pub mod spaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_rig::free_ports;
use serde::Deserialize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
pub enum Place {
    Node(u16),
    Clients(u16),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Clients(group) => write!(f, "clients {group}"),
        }
    }
}

/// From one place to another, in one direction.
pub type Link = (Place, Place);

/// A port of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    Peers,
    Clients,
    Http,
}

/// Each packet is late by `least` and a random share of `spread`, so that packets overtake each
/// other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Delay {
    pub least: Duration,
    pub spread: Duration,
}

impl Delay {
    /// The maximum of both.
    pub(crate) fn worsen(&mut self, other: Self) {
        self.least = self.least.max(other.least);
        self.spread = self.spread.max(other.spread);
    }
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Conditions {
    pub cut: BTreeSet<Link>,
    /// Per mille of the packets to a place.
    pub loss: BTreeMap<Place, u32>,
    /// Of packets to and from a place.
    pub delay: BTreeMap<Place, Delay>,
}

pub trait Network {
    /// For the report.
    fn description(&self) -> &'static str;
    /// Whether conditions can be set.
    fn can_break(&self) -> bool;
    fn address(&self, node: u16, interface: Interface) -> String;
    /// A command that runs at a place.
    fn command(&self, place: Place, program: &Path) -> Command;
    fn set(&mut self, conditions: &Conditions) -> Result<()>;
}

/// Namespaces if this machine allows them, or loopback.
pub fn build(places: &[Place], seed: u64, on_loopback: bool) -> Result<Box<dyn Network>> {
    if on_loopback || !spaces::are_possible() {
        return Ok(Box::new(Loopback::build(places)?));
    }
    Ok(Box::new(spaces::Spaces::build(places, seed)?))
}

/// The port of each interface, by node.
struct Loopback(BTreeMap<u16, [u16; 3]>);

impl Loopback {
    fn build(places: &[Place]) -> Result<Self> {
        let node = |place: &Place| match place {
            Place::Node(id) => Some(*id),
            Place::Clients(_) => None,
        };
        let nodes = places.iter().filter_map(node);
        Ok(Self(nodes.map(|id| Ok((id, free_ports()?))).collect::<Result<_>>()?))
    }
}

impl Network for Loopback {
    fn description(&self) -> &'static str {
        "loopback, without faults of the network"
    }

    fn can_break(&self) -> bool {
        false
    }

    fn address(&self, node: u16, interface: Interface) -> String {
        format!("127.0.0.1:{}", self.0[&node][interface as usize])
    }

    fn command(&self, _place: Place, program: &Path) -> Command {
        Command::new(program)
    }

    fn set(&mut self, conditions: &Conditions) -> Result<()> {
        let is_calm = *conditions == Conditions::default();
        ensure!(is_calm, "this schedule breaks the network, which needs root");
        Ok(())
    }
}
