//! Breadth-first search through every schedule within some bounds.
//!
//! Visited states are remembered by a 64-bit identity, so a run over n states may overlook one
//! with a chance of about n² / 2^65: one in ten thousand for sixty million. How each state was
//! reached is kept, so that harm comes with its shortest schedule.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::collections::VecDeque;

use crate::bounds::Bounds;
use crate::world::{Harm, State, Step, World};

/// What a search found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Distinct states, acceptors taken as interchangeable where they are.
    pub states: usize,
    /// Steps tried.
    pub steps: usize,
    /// Distinct states of single nodes.
    pub node_states: usize,
    /// Steps in which a Heal replaced a live lease of a lower tenure (A5).
    pub replacing: usize,
    /// Length of the longest of the shortest schedules.
    pub depth: usize,
    /// States that were reached and not searched from: none if the search went to the end.
    pub open: usize,
    /// What went wrong, with the schedule that leads there.
    pub harm: Option<(Harm, Vec<String>)>,
}

/// What to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Everything that must hold, single steps included.
    Strictly,
    /// Only harm a user could suffer: two holders, fences out of order, a release that is
    /// confirmed and was not heard.
    ForHarm,
    /// Only two holders.
    ForTwoHolders,
}

/// Searches everything within the bounds, up to the first harm.
#[must_use]
pub fn search(bounds: &Bounds, look: Look) -> Report {
    let mut world = World::new(bounds, look);
    let mut search = Search::default();
    let first = world.first();
    search.meet(&world, &first, 0, Step::Tick);
    let mut report =
        Report { states: 0, steps: 0, node_states: 0, replacing: 0, depth: 0, open: 0, harm: None };
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
                Ok(Some(next)) => search.meet(&world, &next, index, *step),
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
    /// The state each state was first reached from, and by which step.
    reached: Vec<(u32, Step)>,
    frontier: VecDeque<(u32, State)>,
}

impl Report {
    /// Whether everything within the bounds was searched.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.open == 0 && self.harm.is_none()
    }
}

impl Search {
    fn meet(&mut self, world: &World, state: &State, from: u32, by: Step) {
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

    /// Replays the way to a state in words.
    fn schedule(&self, world: &mut World, index: u32, last: Step) -> Vec<String> {
        let mut state = world.first();
        let mut lines = Vec::new();
        for step in self.path(index).into_iter().chain([last]) {
            lines.push(world.tell(&state, step));
            if let Ok(Some(next)) = world.take(&state, step) {
                state = next;
            }
        }
        lines
    }
}
