//! The faults. A [`Fault`] is a value; `Fault::begin` applies it to a [`Testbed`], `Fault::end`
//! removes it.
//!
//! The network conditions are a pure function of the active faults ([`conditions`]), so that faults
//! can overlap and end in any order. Deliberately lacks time and randomness: the schedule has them.

mod testbed;

use std::time::Duration;

use serde::Deserialize;

pub use testbed::{Step, Testbed};

use crate::network::{Conditions, Delay, Link, Place};

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub enum Fault {
    /// Of processes, limits or folders of these nodes. No other fault may change them meanwhile.
    Nodes(NodeFault, Vec<u16>),
    Client(ClientFault, u16),
    Network(NetworkFault),
    /// Not a fault: an administrator makes these nodes the members. Nobody may notice.
    Members(Vec<u16>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum NodeFault {
    /// SIGKILL, then a restart.
    Kill,
    /// SIGTERM, then a restart.
    Stop,
    /// Like `Stop`, one node after another, maybe with the other binary.
    Roll {
        upgrade: bool,
    },
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// A clock with a rate error, from a clean restart to the next.
    Clock {
        /// Positive if the clock is too fast.
        ppm: i64,
    },
    /// A reload of certificates and tokens, which must have no effect.
    Reload,
    FullDisk,
    ReadOnly,
    FewFiles,
    /// Hardly any free memory. A node that needs more dies.
    LittleMemory,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum ClientFault {
    Pause,
    Kill,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub enum NetworkFault {
    Cut(Shape),
    Flap(Shape),
    Lose {
        /// The receivers.
        whom: Vec<Place>,
        permille: u32,
    },
    /// Late and reordered packets.
    Delay {
        /// The senders and receivers.
        whom: Vec<Place>,
        delay: Delay,
    },
    /// A long distance between all nodes, without loss or reordering: all nodes must serve.
    Distance {
        /// Between any two nodes.
        round_trip: Duration,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub enum Shape {
    /// A node from all other nodes. Clients still reach it.
    Isolate(u16),
    /// `len` nodes, from `first` on in a circle, from the rest.
    Halves {
        nodes: u16,
        first: u16,
        len: u16,
    },
    /// A node that receives nothing from nodes.
    Deaf(u16),
    /// A node that sends nothing to nodes.
    Mute(u16),
    OneWay(Place, Place),
    Both(Place, Place),
    /// Each node receives from its neighbours only; of three, from the one before it only.
    Ring(u16),
}

impl Shape {
    fn links(&self, places: &[Place]) -> Vec<Link> {
        let nodes = || places.iter().copied().filter(|place| matches!(place, Place::Node(_)));
        let pairs = || nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
        let at = |place: Place| match place {
            Place::Node(id) | Place::Clients(id) => id,
        };
        match *self {
            Self::Isolate(id) => {
                pairs().filter(|(a, b)| [*a, *b].contains(&Place::Node(id))).collect()
            }
            Self::Halves { nodes, first, len } => {
                let is_in = |place: Place| (at(place) + nodes - first) % nodes < len;
                pairs().filter(|(a, b)| is_in(*a) != is_in(*b)).collect()
            }
            Self::Deaf(id) => pairs().filter(|(_, b)| *b == Place::Node(id)).collect(),
            Self::Mute(id) => pairs().filter(|(a, _)| *a == Place::Node(id)).collect(),
            Self::OneWay(from, to) => vec![(from, to)],
            Self::Both(one, other) => vec![(one, other), (other, one)],
            Self::Ring(count) => {
                let hears = |(a, b): &Link| {
                    let ahead = (at(*b) + count - at(*a)) % count;
                    ahead == 1 || (count > 3 && ahead == count - 1)
                };
                pairs().filter(|way| !hears(way)).collect()
            }
        }
    }

    /// The nodes that it may keep from serving: the smaller side of a partition, or all nodes if no
    /// side is a majority.
    fn nodes(&self, all: &[u16]) -> Vec<u16> {
        match *self {
            Self::Isolate(id) | Self::Deaf(id) | Self::Mute(id) => vec![id],
            Self::Halves { nodes, first, len } => {
                let is_in = |id: u16| (id + nodes - first) % nodes < len;
                let (inside, outside): (Vec<u16>, Vec<u16>) =
                    all.iter().partition(|id| is_in(**id));
                match inside.len().cmp(&outside.len()) {
                    std::cmp::Ordering::Less => inside,
                    std::cmp::Ordering::Greater => outside,
                    std::cmp::Ordering::Equal => all.to_vec(),
                }
            }
            Self::OneWay(Place::Node(id), Place::Clients(_))
            | Self::OneWay(_, Place::Node(id))
            | Self::Both(Place::Node(id), _)
            | Self::Both(_, Place::Node(id)) => vec![id],
            Self::OneWay(..) | Self::Both(..) => Vec::new(),
            Self::Ring(_) => all.to_vec(),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Isolate(id) => format!("node {id} from the other nodes"),
            Self::Halves { nodes, first, len } => {
                let side = (0..*len).map(|step| (first - 1 + step) % nodes + 1);
                let side: Vec<String> = side.map(|id| id.to_string()).collect();
                format!("nodes {} from the rest", side.join(", "))
            }
            Self::Deaf(id) => format!("node {id} hears no node"),
            Self::Mute(id) => format!("no node hears node {id}"),
            Self::OneWay(from, to) => format!("{to} does not hear {from}"),
            Self::Both(one, other) => format!("{one} and {other}"),
            Self::Ring(3) => "each node hears only the one before it".to_owned(),
            Self::Ring(_) => "each node hears only its neighbours".to_owned(),
        }
    }
}

impl Fault {
    /// The kind in reports.
    pub fn kind(&self) -> &'static str {
        use NetworkFault::{Cut, Distance, Flap, Lose};
        use NodeFault::{Clock, FewFiles, FullDisk, Kill, LittleMemory, Pause, ReadOnly};
        use NodeFault::{Reload, Roll, Stop};
        match self {
            Self::Nodes(Kill, nodes) if nodes.len() > 1 => "kill -9 of many",
            Self::Nodes(Kill, _) => "kill -9",
            Self::Nodes(Stop, nodes) if nodes.len() > 1 => "clean restart of many",
            Self::Nodes(Stop, _) => "clean restart",
            Self::Nodes(Roll { upgrade: false }, _) => "rolling restart",
            Self::Nodes(Roll { upgrade: true }, _) => "rolling upgrade",
            Self::Nodes(Pause, nodes) if nodes.len() > 1 => "pause of many",
            Self::Nodes(Pause, _) => "pause",
            Self::Nodes(Clock { .. }, _) => "clock rate",
            Self::Nodes(Reload, _) => "reload",
            Self::Nodes(FullDisk, _) => "full disk",
            Self::Nodes(ReadOnly, _) => "read-only disk",
            Self::Nodes(FewFiles, _) => "few file descriptors",
            Self::Nodes(LittleMemory, _) => "little memory",
            Self::Client(ClientFault::Pause, _) => "pause of a client",
            Self::Client(ClientFault::Kill, _) => "kill -9 of a client",
            Self::Network(Cut(Shape::Deaf(_) | Shape::Mute(_) | Shape::OneWay(..))) => {
                "one-way partition"
            }
            Self::Network(Cut(_)) => "partition",
            Self::Network(Flap(_)) => "flapping partition",
            Self::Network(Lose { .. }) => "packet loss",
            Self::Network(NetworkFault::Delay { .. }) => "delay and reordering",
            Self::Network(Distance { .. }) => "distance",
            Self::Members(_) => "change of members",
        }
    }

    /// The targets, and the degree.
    pub fn whom(&self) -> String {
        let nodes_of = |nodes: &[u16]| places(nodes.iter().copied().map(Place::Node));
        let millis = Duration::as_millis;
        match self {
            Self::Nodes(NodeFault::Clock { ppm }, nodes) => {
                format!("{}, {ppm:+} ppm", nodes_of(nodes))
            }
            Self::Nodes(_, nodes) | Self::Members(nodes) => nodes_of(nodes),
            Self::Client(_, client) => format!("client {client}"),
            Self::Network(NetworkFault::Cut(shape) | NetworkFault::Flap(shape)) => shape.name(),
            Self::Network(NetworkFault::Lose { whom, permille }) => {
                format!("{permille} in a thousand to {}", places(whom.iter().copied()))
            }
            Self::Network(NetworkFault::Delay { whom, delay }) => format!(
                "{} to {} ms at {}",
                millis(&delay.least),
                millis(&(delay.least + delay.spread)),
                places(whom.iter().copied())
            ),
            Self::Network(NetworkFault::Distance { round_trip }) => {
                format!("all nodes, {} ms there and back", millis(round_trip))
            }
        }
    }

    /// The nodes whose processes, limits or folders it changes.
    pub fn processes(&self) -> &[u16] {
        match self {
            Self::Nodes(_, nodes) => nodes,
            Self::Client(..) | Self::Network(_) | Self::Members(_) => &[],
        }
    }

    /// The nodes of these places that it may keep from serving. All others must serve.
    pub fn nodes(&self, places: &[Place]) -> Vec<u16> {
        let node = |place: &Place| match place {
            Place::Node(id) => Some(*id),
            Place::Clients(_) => None,
        };
        let all: Vec<u16> = places.iter().filter_map(node).collect();
        match self {
            Self::Nodes(NodeFault::Reload, _) | Self::Client(..) | Self::Members(_) => Vec::new(),
            Self::Nodes(_, nodes) => nodes.clone(),
            Self::Network(NetworkFault::Distance { .. }) => Vec::new(),
            Self::Network(NetworkFault::Cut(shape) | NetworkFault::Flap(shape)) => {
                shape.nodes(&all)
            }
            // If clients are hard to reach, their grants tell little about the nodes.
            Self::Network(NetworkFault::Lose { whom, .. } | NetworkFault::Delay { whom, .. }) => {
                let nodes: Vec<u16> = whom.iter().filter_map(node).collect();
                if nodes.len() < whom.len() { all } else { nodes }
            }
        }
    }
}

fn places(places: impl Iterator<Item = Place>) -> String {
    places.map(|place| place.to_string()).collect::<Vec<_>>().join(", ")
}

/// The network conditions under all active faults: at each place, the worst of them.
pub fn conditions<'a>(faults: impl Iterator<Item = &'a Fault>, places: &[Place]) -> Conditions {
    let mut conditions = Conditions::default();
    for fault in faults {
        let Fault::Network(fault) = fault else { continue };
        match fault {
            NetworkFault::Cut(shape) | NetworkFault::Flap(shape) => {
                conditions.cut.extend(shape.links(places));
            }
            NetworkFault::Lose { whom, permille } => {
                for place in whom {
                    let worse = conditions.loss.entry(*place).or_default();
                    *worse = (*worse).max(*permille);
                }
            }
            NetworkFault::Delay { whom, delay } => {
                for place in whom {
                    conditions.delay.entry(*place).or_insert(*delay).worsen(*delay);
                }
            }
            // A packet between two nodes passes two of these delays, and so does the way back.
            NetworkFault::Distance { round_trip } => {
                let delay = Delay { least: *round_trip / 4, spread: Duration::ZERO };
                for place in places.iter().filter(|place| matches!(place, Place::Node(_))) {
                    conditions.delay.entry(*place).or_insert(delay).worsen(delay);
                }
            }
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes that faults may keep from serving, and the network conditions under all of them.
    /// The first word of a command is the number of nodes, beside which there is a group of
    /// clients. The faults follow as JSON.
    fn played(command: &str) -> String {
        let (nodes, faults) = command.split_once(' ').expect("nodes and faults");
        let nodes = 1..=nodes.parse().expect("a number");
        let places: Vec<Place> = nodes.map(Place::Node).chain([Place::Clients(1)]).collect();
        let faults: Vec<Fault> = serde_json::from_str(faults).expect("faults");
        let mut text = String::new();
        for fault in &faults {
            let (kind, whom, excused) = (fault.kind(), fault.whom(), fault.nodes(&places));
            text += &format!("{kind} ({whom}) excuses {excused:?}\n");
        }
        let Conditions { cut, loss, delay } = conditions(faults.iter(), &places);
        for to in places {
            let cut = cut.iter().filter(|link| link.1 == to);
            let cut: Vec<String> = cut.map(|(from, _)| from.to_string()).collect();
            let (loss, delay) = (loss.get(&to), delay.get(&to));
            if !cut.is_empty() || loss.is_some() || delay.is_some() {
                let cut = cut.join(", ");
                text += &format!("{to} does not hear [{cut}], loses {loss:?}, {delay:?}\n");
            }
        }
        text
    }

    #[test]
    fn faults_break_what_the_transcript_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/nemesis/transcript.txt");
        paxoslease_rig::check_transcript(path.as_ref(), played);
    }
}
