//! Runs this program under callgrind and reads the dumps that callgrind writes.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::path::Path;

/// The instructions per operation of a path. If the path counts several times, the highest count.
pub(crate) fn count(path: Path) -> Result<u64> {
    let (total, _) = most_expensive(path)?;
    Ok((total / f64::from(path.operations())).round() as u64)
}

/// Prints where the instructions of a path go, by function: alone, then with what they call.
pub(crate) fn show(path: Path) -> Result<()> {
    let (total, dump) = most_expensive(path)?;
    for inclusive in ["no", "yes"] {
        let status = Command::new("callgrind_annotate")
            .args(["--auto=no", &format!("--inclusive={inclusive}")])
            .arg(&dump.0)
            .status()
            .context("starting callgrind_annotate")?;
        ensure!(status.success(), "callgrind_annotate failed: {status}");
    }
    let operations = path.operations();
    println!("{total} instructions in {operations} operations");
    Ok(())
}

fn most_expensive(path: Path) -> Result<(f64, Dump)> {
    let dumps = dumps_of(path)?;
    let totals = dumps.into_iter().map(|dump| Ok((dump.total()?, dump)));
    let totals = totals.collect::<Result<Vec<_>>>()?;
    totals.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).context("callgrind counted nothing")
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
    // Collected before the check, so that the files are deleted also if the run failed. The file
    // without a number is about what came after the last count.
    drop(Dump(file.clone()));
    let dumps = (1..).map(|number: u32| Dump(file.with_extension(number.to_string())));
    let dumps: Vec<_> = dumps.take_while(|dump| dump.0.exists()).collect();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(dumps)
}

/// A file of callgrind, deleted on drop.
struct Dump(PathBuf);

impl Dump {
    /// A dump ends with its totals, of which the first and only is the number of instructions.
    fn total(&self) -> Result<f64> {
        let text = std::fs::read_to_string(&self.0).context("callgrind wrote nothing")?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
        Ok(total.context("callgrind wrote no totals")?.trim().parse()?)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // A file that cannot be deleted stays in the folder for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}
