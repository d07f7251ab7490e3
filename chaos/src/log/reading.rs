//! Reading logs back: every file of a folder, merged by time. A last line that a kill cut off is
//! normal; a whole line that is no event is not.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{EXTENSION, Event};

/// What all processes of a run wrote.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By time; what one process wrote at one instant stays in its order.
    pub events: Vec<Event>,
    /// How many files end in the middle of a line, as after a kill.
    pub cut: u64,
}

/// Why a run's logs cannot be read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A whole line that is no event: this is no log of this version, or it was tampered with.
    #[error("{}:{line}: not an event: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// Reads every log of a folder and merges them by time.
///
/// # Errors
/// When a file cannot be read, or has a whole line that is no event.
pub fn read(folder: &Path) -> Result<Records, ReadError> {
    let failed = |path: &Path, source| ReadError::File { path: path.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut records = Records::default();
    for path in paths {
        let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
        let (events, is_cut) = parse(&bytes).map_err(|(line, source)| ReadError::Line {
            path: path.clone(),
            line,
            source,
        })?;
        records.events.extend(events);
        records.cut += u64::from(is_cut);
    }
    records.events.sort_by_key(|event| event.at);
    Ok(records)
}

/// The events of one file, and whether it ends in the middle of a line.
fn parse(bytes: &[u8]) -> Result<(Vec<Event>, bool), (usize, serde_json::Error)> {
    let mut events = Vec::new();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    for (place, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        if !line.is_empty() {
            events.push(serde_json::from_slice(line).map_err(|error| (place + 1, error))?);
        }
    }
    Ok((events, whole < bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_kill_cut_off_is_dropped_and_a_whole_one_that_makes_no_sense_is_an_error() {
        let whole = b"{\"at\":1,\"event\":\"healed\",\"bound\":7}\n";
        for cut in 1..whole.len() {
            let bytes = [&whole[..], &whole[..cut]].concat();
            let (events, is_cut) = parse(&bytes).expect("the first line is whole");
            assert_eq!((events.len(), is_cut), (1, true), "cut after {cut}");
        }
        let (line, _) = parse(b"{\"at\":1}\n").expect_err("no event");
        assert_eq!(line, 1);
    }
}
