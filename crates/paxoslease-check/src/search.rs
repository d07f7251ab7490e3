//! Breadth-first search through every schedule within given bounds.
//!
//! Visited states are identified by a 64-bit hash, so a search of n states may overlook one with a
//! probability of about n² / 2^65: one in ten thousand for sixty million. The search keeps how it
//! reached each state, so that it can report the shortest schedule that leads to harm.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::collections::VecDeque;

use crate::bounds::Bounds;
use crate::world::{Harm, State, Step, World};

/// The result of a search.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Distinct states. States that differ only by a permutation of equal acceptors count once.
    pub states: usize,
    /// Steps tried.
    pub steps: usize,
    /// Distinct states of single nodes.
    pub node_states: usize,
    /// Steps in which a Heal replaced a live lease of a lower tenure (A5).
    pub replacing: usize,
    /// The steps to the farthest state, each state reached by its shortest schedule.
    pub depth: usize,
    /// States that were reached but not expanded: 0 if the search is complete.
    pub open: usize,
    /// The harm found, and the schedule that leads to it.
    pub harm: Option<(Harm, Vec<String>)>,
}

/// The checks that a search makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checks {
    /// Everything that must hold, including the rules for single steps.
    All,
    /// Only harm that a user could suffer: two holders, fences out of order, a confirmed release
    /// that no majority received, or a released tenure that an acceptor stores again.
    Harm,
    /// Only two holders.
    TwoHolders,
    /// Harm, and leases that are lost although all nodes answer.
    Lost,
}

/// Searches all states within the bounds, up to the first harm.
#[must_use]
pub fn search(bounds: &Bounds, checks: Checks) -> Report {
    let mut world = World::new(bounds, checks);
    let mut search = Search::default();
    let first = world.first();
    search.visit(&world, &first, 0, Step::Tick);
    let mut report = Report::default();
    let mut steps = Vec::new();
    while let Some((index, state)) = search.frontier.pop_front() {
        if search.seen.len() >= bounds.states_max {
            report.open = search.frontier.len() + 1;
            break;
        }
        world.choices(&state, &mut steps);
        for step in &steps {
            report.steps += 1;
            match world.take(&state, *step) {
                Ok(Some(next)) => search.visit(&world, &next, index, *step),
                Ok(None) => {}
                Err(harm) => {
                    report.harm = Some((harm, search.schedule(&mut world, index, *step)));
                    break;
                }
            }
        }
        if report.harm.is_some() {
            break;
        }
    }
    report.states = search.seen.len();
    report.node_states = world.node_states();
    report.replacing = world.replacing();
    report.depth = search.last_depth();
    report
}

#[derive(Default)]
struct Search {
    seen: HashSet<u64, FixedState>,
    /// For each state: the state from which it was first reached, and by which step.
    reached: Vec<(u32, Step)>,
    frontier: VecDeque<(u32, State)>,
}

impl Report {
    /// Whether the search reached every state and found no harm.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.open == 0 && self.harm.is_none()
    }
}

impl Search {
    fn visit(&mut self, world: &World, state: &State, from: u32, by: Step) {
        if self.seen.insert(world.identity(state)) {
            let index = u32::try_from(self.reached.len()).expect("fewer states than that");
            self.reached.push((from, by));
            self.frontier.push_back((index, *state));
        }
    }

    fn path(&self, index: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = index;
        while at != 0 {
            let (from, by) = self.reached[at as usize];
            steps.push(by);
            at = from;
        }
        steps.reverse();
        steps
    }

    fn last_depth(&self) -> usize {
        match self.reached.len() {
            0 => 0,
            count => self.path(u32::try_from(count - 1).expect("counted before")).len(),
        }
    }

    /// Replays the schedule to a state, one line per step.
    fn schedule(&self, world: &mut World, index: u32, last: Step) -> Vec<String> {
        let mut state = world.first();
        let mut lines = Vec::new();
        for step in self.path(index).into_iter().chain([last]) {
            lines.push(world.describe(&state, step));
            if let Ok(Some(next)) = world.take(&state, step) {
                state = next;
            }
        }
        lines
    }
}
