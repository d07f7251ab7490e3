//! The network: it delays, loses, repeats, blocks or holds messages.
//!
//! It knows the sender, the receiver and the kind of a message, not its content. Each message has
//! its own random delay, so messages overtake each other. The world owns the time and the messages.

use std::time::Duration;

use crate::rng::Rng;

/// The properties of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The shortest delay.
    pub delay_min: Duration,
    /// The longest ordinary delay.
    pub delay_max: Duration,
    /// How many messages in a thousand take up to `straggle_max` longer.
    pub straggle_permille: u32,
    /// The longest extra delay of those messages.
    pub straggle_max: Duration,
    /// How many messages in a thousand are lost.
    pub loss_permille: u32,
    /// How many messages in a thousand arrive twice.
    pub duplicate_permille: u32,
}

impl Link {
    /// Every message arrives once, after exactly this long.
    #[must_use]
    pub const fn steady(delay: Duration) -> Self {
        Self {
            delay_min: delay,
            delay_max: delay,
            straggle_permille: 0,
            straggle_max: Duration::ZERO,
            loss_permille: 0,
            duplicate_permille: 0,
        }
    }

    /// A random delay, in nanoseconds.
    pub(crate) fn delay(&self, rng: &mut Rng) -> u64 {
        let mut delay = rng.span((self.delay_min, self.delay_max)).as_nanos() as u64;
        if self.straggle_permille > 0 && rng.chance(self.straggle_permille) {
            delay += rng.below(self.straggle_max.as_nanos() as u64);
        }
        delay
    }

    /// The delays of a message's copies: two `None` if it is lost.
    pub(crate) fn copies(&self, rng: &mut Rng) -> [Option<u64>; 2] {
        if self.loss_permille > 0 && rng.chance(self.loss_permille) {
            return [None, None];
        }
        let first = Some(self.delay(rng));
        let twice = self.duplicate_permille > 0 && rng.chance(self.duplicate_permille);
        [first, twice.then(|| self.delay(rng))]
    }
}

/// A pattern that selects messages for a script; `None` matches everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern {
    /// The sender's id.
    pub from: Option<u16>,
    /// The receiver's id.
    pub to: Option<u16>,
    /// The kind by name, for example `Propose`.
    pub kind: Option<&'static str>,
}

impl Pattern {
    /// Whether a message matches.
    #[must_use]
    pub fn matches(&self, from: u16, to: u16, kind: &str) -> bool {
        self.from.is_none_or(|node| node == from)
            && self.to.is_none_or(|node| node == to)
            && self.kind.is_none_or(|wanted| wanted == kind)
    }
}

/// What a script does with the messages that match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Keeps them until the script releases them.
    Hold,
    /// Loses them.
    Drop,
    /// Delivers them this many times.
    Repeat(u32),
}

/// The id of a script's filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FilterId(pub(crate) u32);

/// What happens to one message.
pub(crate) enum Fate {
    Arrives([Option<u64>; 2]),
    Repeats(u32),
    Held(FilterId),
    Lost,
}

/// The network between nodes.
#[derive(Clone, Debug)]
pub struct Network {
    /// The current properties of the connections.
    pub link: Link,
    /// For each sender, the nodes that it cannot reach, as a bit set of ids.
    cut: Vec<u128>,
    filters: Vec<(FilterId, Pattern, Action)>,
    filters_made: u32,
}

impl Network {
    pub(crate) fn new(link: Link, nodes: u16) -> Self {
        assert!(nodes < 128, "a bit for every node");
        let cut = vec![0; usize::from(nodes) + 1];
        Self { link, cut, filters: Vec::new(), filters_made: 0 }
    }

    /// Blocks messages from one node to another. The other direction is not affected.
    pub fn cut(&mut self, from: u16, to: u16) {
        self.cut[usize::from(from)] |= 1 << to;
    }

    /// Unblocks messages from one node to another.
    pub fn mend(&mut self, from: u16, to: u16) {
        self.cut[usize::from(from)] &= !(1 << to);
    }

    /// Unblocks all messages.
    pub fn mend_all(&mut self) {
        self.cut.fill(0);
    }

    pub(crate) fn add_filter(&mut self, pattern: Pattern, action: Action) -> FilterId {
        self.filters_made += 1;
        let id = FilterId(self.filters_made);
        self.filters.push((id, pattern, action));
        id
    }

    pub(crate) fn remove_filter(&mut self, id: FilterId) {
        self.filters.retain(|(filter, _, _)| *filter != id);
    }

    pub(crate) fn fate(&mut self, rng: &mut Rng, from: u16, to: u16, kind: &str) -> Fate {
        let mut filters = self.filters.iter();
        if let Some((id, _, action)) = filters.find(|(_, p, _)| p.matches(from, to, kind)) {
            return match action {
                Action::Hold => Fate::Held(*id),
                Action::Drop => Fate::Lost,
                Action::Repeat(times) => Fate::Repeats(*times),
            };
        }
        if self.cut[usize::from(from)] & 1 << to != 0 {
            return Fate::Lost;
        }
        match self.link.copies(rng) {
            [None, None] => Fate::Lost,
            copies => Fate::Arrives(copies),
        }
    }
}
