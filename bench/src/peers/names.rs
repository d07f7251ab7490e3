//! Which name an operation is about: by the rules of the product's load generator, so that every
//! service sees the same.

use paxoslease_core::Rng;
use paxoslease_load::Workload;

use super::Load;

/// Names that pairs go through before they begin again.
const NAMES: u32 = 1_000_000;
/// Digits that tell names apart.
const DIGITS: usize = 9;

#[derive(Debug)]
pub(super) struct Names {
    workload: Workload,
    /// How many names each client has gone through.
    rounds: Vec<u32>,
    /// The lease whose turn it is.
    cursor: u32,
    rng: Rng,
}

impl Names {
    pub(super) fn new(load: &Load) -> Self {
        let rounds = vec![0; load.in_flight as usize];
        Self { workload: load.workload, rounds, cursor: 0, rng: Rng::seeded(1) }
    }

    /// What this client wants next.
    pub(super) fn next(&mut self, client: u32) -> u32 {
        match self.workload {
            Workload::Pairs => self.own(client, 0),
            Workload::Mixed { hot_names, hot_share } => {
                if (self.rng.bits() as f64) < hot_share * u64::MAX as f64 {
                    (self.rng.bits() % u64::from(hot_names)) as u32
                } else {
                    self.own(client, hot_names)
                }
            }
            Workload::Handover => 0,
            Workload::Renew { leases } => {
                let number = self.cursor;
                self.cursor = (number + 1) % leases;
                number
            }
            Workload::Fill => {
                self.cursor += 1;
                self.cursor - 1
            }
        }
    }

    /// A name that no other client uses.
    fn own(&mut self, client: u32, first: u32) -> u32 {
        let clients = self.rounds.len() as u32;
        let round = &mut self.rounds[client as usize];
        let number = first + client + clients * *round;
        *round = (*round + 1) % (NAMES / clients);
        number
    }
}

/// A name in place: a prefix and digits. All are of the same length.
#[derive(Clone, Debug)]
pub(super) struct Spelling(Vec<u8>);

impl Spelling {
    pub(super) fn new(prefix: &str) -> Self {
        let mut text = prefix.as_bytes().to_vec();
        text.extend_from_slice(&[b'0'; DIGITS]);
        Self(text)
    }

    pub(super) fn of(&mut self, number: u32) -> &[u8] {
        let digits = self.0.len() - DIGITS;
        let mut left = number;
        for digit in self.0[digits..].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use paxoslease_load::Extent;

    use super::super::tests::load;
    use super::*;

    fn names(workload: Workload) -> Names {
        Names::new(&load(workload, Extent::Count(1)))
    }

    #[test]
    fn clients_have_names_of_their_own_unless_these_are_hot() {
        let mut pairs = names(Workload::Pairs);
        let drawn = [0, 1, 0, 1].map(|client| pairs.next(client));
        assert_eq!(drawn, [0, 1, 4, 5], "four are in flight");
        let mut mixed = names(Workload::Mixed { hot_names: 2, hot_share: 0.25 });
        let hot = (0..4000).filter(|_| mixed.next(3) < 2).count();
        assert!((850..1150).contains(&hot), "{hot}");
    }

    #[test]
    fn leases_are_renewed_in_turn_and_filled_once() {
        let mut renew = names(Workload::Renew { leases: 3 });
        assert_eq!([0; 4].map(|client| renew.next(client)), [0, 1, 2, 0]);
        let mut fill = names(Workload::Fill);
        assert_eq!([0; 4].map(|client| fill.next(client)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_name_is_its_prefix_and_nine_digits() {
        let mut spelling = Spelling::new("load/");
        assert_eq!(spelling.of(120), b"load/000000120");
        assert_eq!(spelling.of(7), b"load/000000007");
    }
}
