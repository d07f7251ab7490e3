//! The figures of a run, for people.

use std::fmt::Write as _;

use super::model::Class;
use super::run::Findings;

/// A summary, and readable parts of histories that are not linearizable.
pub fn text(findings: &Findings) -> String {
    let Findings { keys, operations, grants, unknown, undecided, faults, .. } = findings;
    let bad = findings.not_linearizable();
    let mut text = format!(
        "{operations} operations on {keys} keys, {grants} grants, {unknown} without a known \
         outcome, {faults} faults\n{bad} keys are not linearizable, {undecided} undecided\n"
    );
    for (classes, count) in &findings.bad {
        let titles: Vec<&str> = classes.iter().map(|class: &Class| class.title()).collect();
        let title = if titles.is_empty() { "unexplained".to_owned() } else { titles.join(" and ") };
        let _always = writeln!(text, "  {count:>6}  {title}");
    }
    for ((life, dialect), (bad, all)) in &findings.kinds {
        let _always = writeln!(text, "{life:?} leases, {dialect:?} dialect: {bad} of {all} keys");
    }
    for (error, count) in &findings.errors {
        let _always = writeln!(text, "error {error}: {count}");
    }
    for bug in &findings.bugs {
        let _always = writeln!(text, "BUG: {bug}");
    }
    for shown in &findings.shown {
        let _always = write!(text, "\n{shown}");
    }
    text
}
