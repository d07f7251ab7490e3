//! The faults. A [`Fault`] is a value; `Fault::begin` applies it to a [`Testbed`], `Fault::end`
//! removes it.
//!
//! The network conditions are a pure function of the active faults ([`conditions`]), so that faults
//! can overlap and end in any order. Deliberately lacks time and randomness: the schedule has them.

mod testbed;

use std::time::Duration;

pub use testbed::{Step, Testbed};

use crate::network::{Conditions, Delay, Link, Place};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Of processes, limits or folders of these nodes. No other fault may change them meanwhile.
    Nodes(NodeFault, Vec<u16>),
    Client(ClientFault, u16),
    Network(NetworkFault),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientFault {
    Pause,
    Kill,
}

#[derive(Clone, PartialEq, Eq, Debug)]
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

#[derive(Clone, PartialEq, Eq, Debug)]
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
            Self::Network(fault) => fault.kind(),
        }
    }

    /// The targets, and the degree.
    pub fn whom(&self) -> String {
        match self {
            Self::Nodes(fault, nodes) => {
                let nodes = places(nodes.iter().copied().map(Place::Node));
                match fault {
                    NodeFault::Clock { ppm } => format!("{nodes}, {ppm:+} ppm"),
                    _ => nodes,
                }
            }
            Self::Client(_, client) => format!("client {client}"),
            Self::Network(fault) => fault.whom(),
        }
    }

    /// The nodes whose processes, limits or folders it changes.
    pub fn processes(&self) -> &[u16] {
        match self {
            Self::Nodes(_, nodes) => nodes,
            Self::Client(..) | Self::Network(_) => &[],
        }
    }

    /// The nodes of these places that it may keep from serving. All others must serve.
    pub fn nodes(&self, places: &[Place]) -> Vec<u16> {
        match self {
            Self::Nodes(NodeFault::Reload, _) | Self::Client(..) => Vec::new(),
            Self::Nodes(_, nodes) => nodes.clone(),
            Self::Network(fault) => fault.nodes(places),
        }
    }
}

impl NetworkFault {
    fn kind(&self) -> &'static str {
        match self {
            Self::Cut(Shape::Deaf(_) | Shape::Mute(_) | Shape::OneWay(..)) => "one-way partition",
            Self::Cut(_) => "partition",
            Self::Flap(_) => "flapping partition",
            Self::Lose { .. } => "packet loss",
            Self::Delay { .. } => "delay and reordering",
            Self::Distance { .. } => "distance",
        }
    }

    fn whom(&self) -> String {
        let millis = Duration::as_millis;
        match self {
            Self::Cut(shape) | Self::Flap(shape) => shape.name(),
            Self::Lose { whom, permille } => {
                format!("{permille} in a thousand to {}", places(whom.iter().copied()))
            }
            Self::Delay { whom, delay } => format!(
                "{} to {} ms at {}",
                millis(&delay.least),
                millis(&(delay.least + delay.spread)),
                places(whom.iter().copied())
            ),
            Self::Distance { round_trip } => {
                format!("all nodes, {} ms there and back", millis(round_trip))
            }
        }
    }

    fn nodes(&self, places: &[Place]) -> Vec<u16> {
        let node = |place: &Place| match place {
            Place::Node(id) => Some(*id),
            Place::Clients(_) => None,
        };
        let all: Vec<u16> = places.iter().filter_map(node).collect();
        match self {
            Self::Cut(shape) | Self::Flap(shape) => shape.nodes(&all),
            // If clients are hard to reach, their grants tell little about the nodes.
            Self::Lose { whom, .. } | Self::Delay { whom, .. } => {
                let nodes: Vec<u16> = whom.iter().filter_map(node).collect();
                if nodes.len() < whom.len() { all } else { nodes }
            }
            Self::Distance { .. } => Vec::new(),
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

    fn five() -> Vec<Place> {
        (1..=5).map(Place::Node).chain([Place::Clients(1)]).collect()
    }

    fn links(shape: &Shape) -> Vec<(u16, u16)> {
        let id = |place| match place {
            Place::Node(id) => id,
            Place::Clients(group) => 100 + group,
        };
        shape.links(&five()).into_iter().map(|(a, b)| (id(a), id(b))).collect()
    }

    #[test]
    fn each_shape_cuts_exactly_what_it_says() {
        assert_eq!(links(&Shape::Isolate(2)).len(), 8);
        let halves = links(&Shape::Halves { nodes: 5, first: 4, len: 3 });
        assert_eq!(halves.len(), 2 * 3 * 2, "4, 5, 1 from 2, 3: both ways");
        assert!(halves.contains(&(1, 2)) && halves.contains(&(3, 5)) && !halves.contains(&(4, 1)));
        assert_eq!(links(&Shape::Deaf(3)), [(1, 3), (2, 3), (4, 3), (5, 3)]);
        assert_eq!(links(&Shape::Mute(3)), [(3, 1), (3, 2), (3, 4), (3, 5)]);
        let ring = links(&Shape::Ring(5));
        assert_eq!(ring.len(), 10);
        assert!(!ring.contains(&(1, 2)) && !ring.contains(&(1, 5)) && ring.contains(&(1, 3)));
        let three: Vec<Place> = (1..=3).map(Place::Node).collect();
        assert_eq!(Shape::Ring(3).links(&three).len(), 3, "each hears one, not two");
        assert_eq!(links(&Shape::Both(Place::Clients(1), Place::Node(2))), [(101, 2), (2, 101)]);
    }

    #[test]
    fn overlapping_faults_add_up_and_end_alone() {
        let one = Fault::Network(NetworkFault::Cut(Shape::Deaf(1)));
        let two = Fault::Network(NetworkFault::Cut(Shape::Isolate(1)));
        let whom = vec![Place::Node(1)];
        let loss = |permille| Fault::Network(NetworkFault::Lose { whom: whom.clone(), permille });
        let places = five();
        let both = conditions([&one, &two, &loss(10), &loss(20)].into_iter(), &places);
        assert_eq!(both.cut.len(), 8);
        assert_eq!(both.loss[&Place::Node(1)], 20);
        assert_eq!(conditions([&one].into_iter(), &places).cut.len(), 4);
        assert_eq!(conditions([].into_iter(), &places), Conditions::default());
    }

    #[test]
    fn a_fault_excuses_only_the_nodes_that_it_hits() {
        let nodes = |fault: Fault| fault.nodes(&five());
        let cut = |shape| nodes(Fault::Network(NetworkFault::Cut(shape)));
        assert_eq!(nodes(Fault::Nodes(NodeFault::Pause, vec![2, 4])), [2, 4]);
        assert_eq!(cut(Shape::Isolate(3)), [3]);
        assert_eq!(cut(Shape::Halves { nodes: 5, first: 4, len: 3 }), [2, 3], "not 4, 5 and 1");
        assert_eq!(cut(Shape::OneWay(Place::Node(1), Place::Node(2))), [2]);
        assert_eq!(cut(Shape::OneWay(Place::Node(1), Place::Clients(1))), [1]);
        assert_eq!(cut(Shape::Both(Place::Clients(1), Place::Node(2))), [2]);
        assert_eq!(cut(Shape::Ring(5)), [1, 2, 3, 4, 5]);
        let lose = |whom| nodes(Fault::Network(NetworkFault::Lose { whom, permille: 9 }));
        assert_eq!(lose(vec![Place::Node(5)]), [5]);
        assert_eq!(lose(vec![Place::Node(5), Place::Clients(1)]), [1, 2, 3, 4, 5]);
        let none: [u16; 0] = [];
        assert_eq!(nodes(Fault::Nodes(NodeFault::Reload, vec![1])), none);
        assert_eq!(nodes(Fault::Client(ClientFault::Kill, 1)), none);
        let far = NetworkFault::Distance { round_trip: Duration::from_secs(1) };
        assert_eq!(nodes(Fault::Network(far)), none);
    }

    #[test]
    fn distance_is_a_quarter_at_each_of_four_delays() {
        let round_trip = Duration::from_millis(300);
        let far = Fault::Network(NetworkFault::Distance { round_trip });
        let far = conditions([&far].into_iter(), &five());
        let delay = Delay { least: Duration::from_millis(75), spread: Duration::ZERO };
        assert_eq!(far.delay.len(), 5);
        assert!(far.delay.values().all(|each| *each == delay));
    }
}
