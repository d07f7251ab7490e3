//! What becomes of a message: delayed, lost, repeated, cut off, or held back by a script.
//!
//! It knows numbers and kinds, not contents. Delays are drawn one by one, so messages overtake
//! each other. Time and the messages themselves are the world's.

use std::time::Duration;

use crate::rng::Rng;

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The shortest delay.
    pub delay_min: Duration,
    /// The longest ordinary delay.
    pub delay_max: Duration,
    /// How many in a thousand take up to `straggle_max` more.
    pub straggle_permille: u32,
    /// How much longer these take at most.
    pub straggle_max: Duration,
    /// How many in a thousand are lost.
    pub loss_permille: u32,
    /// How many in a thousand arrive twice.
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

    /// How long a message takes.
    pub(crate) fn delay(&self, rng: &mut Rng) -> u64 {
        let (min, max) = (self.delay_min.as_nanos() as u64, self.delay_max.as_nanos() as u64);
        let mut delay = rng.between(min, max);
        if self.straggle_permille > 0 && rng.chance(self.straggle_permille) {
            delay += rng.below(self.straggle_max.as_nanos() as u64);
        }
        delay
    }

    /// The delays of a message's copies: none when it is lost.
    pub(crate) fn copies(&self, rng: &mut Rng) -> [Option<u64>; 2] {
        if self.loss_permille > 0 && rng.chance(self.loss_permille) {
            return [None, None];
        }
        let first = Some(self.delay(rng));
        let twice = self.duplicate_permille > 0 && rng.chance(self.duplicate_permille);
        [first, twice.then(|| self.delay(rng))]
    }
}

/// Which messages a script means; `None` is any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern {
    /// The sender's id.
    pub from: Option<u16>,
    /// The addressee's id.
    pub to: Option<u16>,
    /// The kind by name, for example `Propose`.
    pub kind: Option<&'static str>,
}

impl Pattern {
    /// Every message.
    pub const ANY: Self = Self { from: None, to: None, kind: None };

    /// Messages of one kind.
    #[must_use]
    pub const fn kind(kind: &'static str) -> Self {
        Self { kind: Some(kind), ..Self::ANY }
    }

    /// Only those from this node.
    #[must_use]
    pub const fn from(self, node: u16) -> Self {
        Self { from: Some(node), ..self }
    }

    /// Only those to this node.
    #[must_use]
    pub const fn to(self, node: u16) -> Self {
        Self { to: Some(node), ..self }
    }

    /// Whether a message is meant.
    #[must_use]
    pub fn matches(&self, from: u16, to: u16, kind: &str) -> bool {
        self.from.is_none_or(|node| node == from)
            && self.to.is_none_or(|node| node == to)
            && self.kind.is_none_or(|wanted| wanted == kind)
    }
}

/// What a script does to the messages it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Keeps them until the script lets go of them.
    Hold,
    /// Loses them.
    Drop,
    /// Lets them arrive this often.
    Repeat(u32),
    /// Lets them take exactly this long.
    Delay(Duration),
}

/// A script's filter, to lift it again.
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
    /// How messages travel now.
    pub link: Link,
    /// For each sender the nodes it cannot reach, as a bit set of ids.
    cut: Vec<u128>,
    filters: Vec<(FilterId, Pattern, Action)>,
    filters_made: u32,
    /// Messages sent, delivered or not.
    pub sent: u64,
}

impl Network {
    pub(crate) fn new(link: Link, nodes: u16) -> Self {
        assert!(nodes < 128, "a bit for every node");
        let cut = vec![0; usize::from(nodes) + 1];
        Self { link, cut, filters: Vec::new(), filters_made: 0, sent: 0 }
    }

    /// Cuts the way from one node to another. The way back stays as it is.
    pub fn cut(&mut self, from: u16, to: u16) {
        self.cut[usize::from(from)] |= 1 << to;
    }

    /// Mends the way from one node to another.
    pub fn mend(&mut self, from: u16, to: u16) {
        self.cut[usize::from(from)] &= !(1 << to);
    }

    /// Mends every way.
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
        self.sent += 1;
        let mut filters = self.filters.iter();
        if let Some((id, _, action)) = filters.find(|(_, p, _)| p.matches(from, to, kind)) {
            return match action {
                Action::Hold => Fate::Held(*id),
                Action::Drop => Fate::Lost,
                Action::Repeat(times) => Fate::Repeats(*times),
                Action::Delay(span) => Fate::Arrives([Some(span.as_nanos() as u64), None]),
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
