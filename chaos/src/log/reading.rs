//! Reads the logs of a folder, merged by time. An incomplete last line is normal after a kill. A
//! complete line that is not an event is an error.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{EXTENSION, Event};

#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By time; events of one process at one instant keep their order.
    pub events: Vec<Event>,
    /// How many files end in an incomplete line, as after a kill.
    pub cut: u64,
}

/// Reads every log of a folder and merges the events by time.
pub fn read(folder: &Path) -> Result<Records> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut records = Records::default();
    for path in paths {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let (events, is_cut) = parse(&bytes).with_context(|| path.display().to_string())?;
        records.events.extend(events);
        records.cut += u64::from(is_cut);
    }
    records.events.sort_by_key(|event| event.at);
    Ok(records)
}

/// The events of one file, and whether it ends in an incomplete line.
fn parse(bytes: &[u8]) -> Result<(Vec<Event>, bool)> {
    let mut events = Vec::new();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    for (place, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        if !line.is_empty() {
            let event = serde_json::from_slice(line);
            events.push(event.with_context(|| format!("line {} is not an event", place + 1))?);
        }
    }
    Ok((events, whole < bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_last_line_is_dropped_and_a_bad_one_an_error() {
        let whole = b"{\"at\":1,\"event\":\"healed\",\"bound\":7}\n";
        for cut in 1..whole.len() {
            let bytes = [&whole[..], &whole[..cut]].concat();
            let (events, is_cut) = parse(&bytes).expect("the first line is whole");
            assert_eq!((events.len(), is_cut), (1, true), "cut after {cut}");
        }
        let error = parse(b"{\"at\":1}\n").expect_err("no event");
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
