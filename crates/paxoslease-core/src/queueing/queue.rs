//! Those who wait behind the first for one name, in the order they came. Whoever leaves from the
//! middle leaves a gap, so that leaving does not take the longer the more there are.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::queueing::contender::Want;

/// Gaps that are not worth closing.
const GAPS_SPARE: usize = 32;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue {
    slots: VecDeque<Option<Want>>,
    /// The place of the first slot; places are counted from the first who ever queued.
    base: u64,
    gaps: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Want> {
        self.slots.iter().flatten()
    }

    /// Says which place it has.
    pub(crate) fn push(&mut self, want: Want) -> u64 {
        self.slots.push_back(Some(want));
        self.base + self.slots.len() as u64 - 1
    }

    pub(crate) fn pop(&mut self) -> Option<Want> {
        loop {
            let Some(slot) = self.slots.pop_front() else {
                self.base = 0;
                return None;
            };
            self.base += 1;
            match slot {
                Some(want) => return Some(want),
                None => self.gaps -= 1,
            }
        }
    }

    pub(crate) fn get(&self, place: u64) -> Option<&Want> {
        let slot = usize::try_from(place.checked_sub(self.base)?).ok()?;
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn remove(&mut self, place: u64) -> Option<Want> {
        let slot = usize::try_from(place.checked_sub(self.base)?).ok()?;
        let want = self.slots.get_mut(slot)?.take()?;
        self.gaps += 1;
        Some(want)
    }

    /// Whether there are so many gaps that it is time for [`Self::close_gaps`].
    pub(crate) fn is_sparse(&self) -> bool {
        self.gaps > GAPS_SPARE.max(self.slots.len() / 2)
    }

    /// Closes all gaps; those who stay get other places.
    pub(crate) fn close_gaps(&mut self) -> impl Iterator<Item = (u64, &Want)> {
        self.slots.retain(Option::is_some);
        self.gaps = 0;
        (self.base..).zip(self.slots.iter().flatten())
    }

    /// Takes all of whom that is true.
    pub(crate) fn take_if(&mut self, is_taken: impl Fn(&Want) -> bool) -> Vec<Want> {
        let mut taken = Vec::new();
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(&is_taken) {
                taken.extend(slot.take());
                self.gaps += 1;
            }
        }
        taken
    }
}
