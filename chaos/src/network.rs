//! Who can hear whom. Nodes and groups of clients are places; the weather says which ways between
//! places are cut, how much is lost, and how late the rest arrives.
//!
//! Owns the words for that and the choice between real networks ([`spaces`]) and what a machine
//! without root can do ([`loopback`]). Deliberately lacks time: the weather is set as a whole, and
//! whoever plays a schedule sets it anew at every change.

pub mod loopback;
pub mod relay;
pub mod spaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

/// Where processes run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// One node.
    Node(u16),
    /// A group of clients, such as those of one building.
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

/// From one place to another, and not back.
pub type Way = (Place, Place);

/// What a node listens for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Door {
    /// Other nodes.
    Peers,
    /// Clients that speak RESP.
    Clients,
    /// Clients that speak HTTP.
    Http,
}

impl Door {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Clients, Self::Peers, Self::Http];
}

/// How late things arrive: each by `least` and a random share of `spread`, so that those sent one
/// after another overtake each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    /// At least so late.
    pub least: Duration,
    /// And up to this much more.
    pub spread: Duration,
}

impl Delay {
    /// As late as the later of both.
    pub(crate) fn worsen(&mut self, other: Self) {
        self.least = self.least.max(other.least);
        self.spread = self.spread.max(other.spread);
    }
}

/// The state of the whole network.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Weather {
    /// Ways on which nothing arrives.
    pub cut: BTreeSet<Way>,
    /// How many in a thousand packets to a place are lost.
    pub loss: BTreeMap<Place, u32>,
    /// How late packets to and from a place are.
    pub delay: BTreeMap<Place, Delay>,
}

/// A network in which places are joined.
pub trait Network {
    /// In a few words, for the report.
    fn description(&self) -> &'static str;
    /// Where a node listens.
    fn listen(&self, node: u16, door: Door) -> String;
    /// Where a place reaches a node.
    fn address(&self, from: Place, node: u16, door: Door) -> String;
    /// A program that will run at a place.
    fn command(&self, place: Place, program: &Path) -> Command;
    /// Makes the weather what it is from now on.
    ///
    /// # Errors
    /// When a rule or a relay cannot be changed; the weather is then unknown.
    fn set(&mut self, weather: &Weather) -> Result<()>;
}

/// The best network this machine lets us build, for nodes `1..=nodes` and groups `1..=groups`.
///
/// # Errors
/// When even loopback cannot be used, or namespaces were there at first and then failed.
pub fn build(nodes: u16, groups: u16, seed: u64, on_loopback: bool) -> Result<Box<dyn Network>> {
    let places: Vec<Place> =
        (1..=nodes).map(Place::Node).chain((1..=groups).map(Place::Clients)).collect();
    if on_loopback || !spaces::are_possible() {
        return Ok(Box::new(loopback::Loopback::build(&places, seed)?));
    }
    Ok(Box::new(spaces::Spaces::build(&places, seed)?))
}
