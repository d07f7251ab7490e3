//! Says what is wrong with a history that is not linearizable: which wrong replies a model must
//! tolerate to accept it.

use super::history::Operation;
use super::judge::{Verdict, judge};
use super::model::{Class, Service};

/// The classes that do not concern safety. Where several explain a history, the first is told: a
/// command that was silent about its effect also explains the reads that show the effect.
const REPLIES: [Class; 7] = [
    Class::Silent,
    Class::Hint,
    Class::Conflict,
    Class::Remaining,
    Class::Dirty,
    Class::Twice,
    Class::Claimed,
];

/// The fewest classes that explain a history: one, else two, else all wrong replies, else all.
/// Empty if none of them does.
pub fn classify(operations: &[Operation], service: Service) -> Vec<Class> {
    let explains = |classes: &[Class]| judge(operations, service, classes) == Verdict::Linearizable;
    // A lease that ends at any time explains much, and so do two holders. So they come last.
    let singles = REPLIES.iter().map(|class| vec![*class]);
    let pairs = REPLIES
        .iter()
        .enumerate()
        .flat_map(|(place, one)| REPLIES[place + 1..].iter().map(move |other| vec![*one, *other]));
    let others = [
        vec![Class::Expiry],
        vec![Class::Fence],
        REPLIES.to_vec(),
        vec![Class::TwoHolders],
        Class::ALL.to_vec(),
    ];
    let mut candidates = singles.chain(pairs).chain(others);
    candidates.find(|classes| explains(classes)).unwrap_or_default()
}
