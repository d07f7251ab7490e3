//! Runs of this very program under callgrind, and what it wrote about them.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::path::Path;

/// Functions shown of a profile.
const SHOWN: usize = 25;

/// Instructions per operation.
pub(crate) struct Profile {
    pub(crate) total: f64,
    operations: u32,
    dump: Dump,
}

impl Profile {
    /// Runs a path. Where it counts several times, the most expensive of them is its cost.
    pub(crate) fn of(path: Path) -> Result<Self> {
        let mut most = None;
        for dump in dumps_of(path)? {
            let total = dump.total()?;
            if most.as_ref().is_none_or(|(most, _)| total > *most) {
                most = Some((total, dump));
            }
        }
        let (total, dump) = most.context("callgrind counted nothing")?;
        let operations = path.operations();
        Ok(Self { total: total / f64::from(operations), operations, dump })
    }

    /// For people: where the instructions go.
    pub(crate) fn by_function(&self) -> Result<String> {
        let mut text = String::new();
        for (title, how) in [("in itself", Costs::Own), ("with all it calls", Costs::Inclusive)] {
            let mut functions: Vec<_> = self.costs(how)?.into_iter().collect();
            // Whatever contains everything says nothing, and neither does what hardly counts.
            functions.retain(|(_, cost)| (0.001..0.99).contains(&(cost / self.total)));
            functions.sort_by(|a, b| b.1.total_cmp(&a.1));
            writeln!(text, "{:>14} {:>6}  function, {title}", "instructions", "share")?;
            for (function, cost) in functions.into_iter().take(SHOWN) {
                let share = 100.0 * cost / self.total;
                writeln!(text, "{cost:>14.1} {share:>5.1}%  {function}")?;
            }
            writeln!(text)?;
        }
        writeln!(text, "{:>14.1} instructions in all, per operation", self.total)?;
        Ok(text)
    }

    fn costs(&self, how: Costs) -> Result<ByFunction> {
        let mut costs = self.dump.by_function(how)?;
        costs.values_mut().for_each(|cost| *cost /= f64::from(self.operations));
        Ok(costs)
    }
}

type ByFunction = BTreeMap<String, f64>;

/// Which instructions are a function's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Costs {
    Own,
    Inclusive,
}

/// Runs a path with callgrind, which writes a dump whenever [`crate::path::counted`] returns.
fn dumps_of(path: Path) -> Result<Vec<Dump>> {
    let name = format!("paxoslease-instructions-{}-{}", std::process::id(), path.name());
    let file = env::temp_dir().join(name);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--zero-before=*path::counted", "--dump-after=*path::counted"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe()?)
        .args(["run", &path.name()])
        .output()
        .context("starting valgrind")?;
    // Collected first, so that they are deleted also if the run failed. The one without a number
    // is of what came after.
    drop(Dump(file.clone()));
    let dumps = (1..).map(|number: u32| Dump(file.with_extension(number.to_string())));
    let dumps: Vec<_> = dumps.take_while(|dump| dump.0.exists()).collect();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(dumps)
}

/// What callgrind wrote; deleted with this.
struct Dump(PathBuf);

impl Dump {
    fn total(&self) -> Result<f64> {
        let text = std::fs::read_to_string(&self.0).context("callgrind wrote nothing")?;
        total_in(&text).context("callgrind wrote no totals")
    }

    fn by_function(&self, how: Costs) -> Result<ByFunction> {
        let inclusive = if how == Costs::Inclusive { "yes" } else { "no" };
        let output = Command::new("callgrind_annotate")
            .args(["--threshold=100", "--auto=no", &format!("--inclusive={inclusive}")])
            .arg(&self.0)
            .output()
            .context("starting callgrind_annotate")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut costs = ByFunction::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((function, cost)) = annotated(line) else { continue };
            let known = costs.entry(function.to_owned()).or_default();
            // Inlining spreads a function over files: its own instructions are split between
            // them, but each of them is shown with all that is called.
            *known = if how == Costs::Inclusive { known.max(cost) } else { *known + cost };
        }
        Ok(costs)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // What cannot be deleted is left to whoever cleans the folder for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A dump ends with its totals, of which instructions are the first and only.
fn total_in(dump: &str) -> Option<f64> {
    dump.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// Reads `1,234 (56.7%)  file:function [object]`.
fn annotated(line: &str) -> Option<(&str, f64)> {
    let (count, rest) = line.trim_start().split_once([' ', '('])?;
    let count: f64 = count.replace(',', "").parse().ok()?;
    let place = rest.rsplit_once("%)").map_or(rest, |(_, place)| place).trim();
    let place = place.rsplit_once(" [").map_or(place, |(place, _)| place);
    let function = place.split_once(':').map_or(place, |(_, function)| function);
    (function != "PROGRAM TOTALS").then_some((function, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_callgrind_annotate_gives_function_and_count() {
        let line = "88,315,685 (11.74%)  src/str.rs:core::str::from_utf8 [target/release/core]";
        assert_eq!(annotated(line), Some(("core::str::from_utf8", 88_315_685.0)));
        let line = " 4,053,888 ( 0.54%)  src/a.rs:<impl a::B>::c";
        assert_eq!(annotated(line), Some(("<impl a::B>::c", 4_053_888.0)));
        assert_eq!(annotated("752 (100.0%)  PROGRAM TOTALS"), None);
        assert_eq!(annotated("Ir                   file:function"), None);
        assert_eq!(annotated("----------"), None);
    }

    #[test]
    fn a_dump_gives_its_total() {
        assert_eq!(total_in("fn=(1) main\n1 20\n\ntotals: 1234\n"), Some(1234.0));
        assert_eq!(total_in("fn=(1) main\n1 20\n"), None);
    }
}
