//! Traces for tests with whole processes: each shard records its inputs and outputs, to be replayed
//! and judged afterwards (docs/checking.md). The folder is read from the environment, only in a
//! build with the feature `trace`, which no release has.

use std::fs::File;
use std::path::PathBuf;

use paxoslease_core::{Instant, Shard as Core};
use paxoslease_trace::{Header, Sink, StartState, TracedShard};

use crate::stable::{Leases, Startup};

/// The variable with the folder for traces. Without it, no trace is written.
const FOLDER: &str = "PAXOSLEASE_TRACE_DIR";

/// Wraps a shard that has just started.
///
/// # Panics
/// When the trace cannot be created: a test that asks for a trace must not run without it.
pub(crate) fn begin(core: Core, startup: &Startup, index: u16, now: Instant) -> TracedShard {
    let start_state = match startup.leases {
        Leases::None(start) => start.into(),
        Leases::Snapshot(record, _) => StartState::snapshot(record, &core, now),
    };
    let sink = match std::env::var_os(FOLDER) {
        None => Sink::none(),
        Some(folder) => {
            let boot = startup.counter();
            let name = format!("{}-{boot:016x}-{index}.jsonl", core.config().node);
            let path = PathBuf::from(folder).join(name);
            let file = File::create_new(&path)
                .unwrap_or_else(|error| panic!("{FOLDER}: {}: {error}", path.display()));
            Sink::new(Box::new(file))
        }
    };
    let header = Header::new(core.config(), index, now, paxoslease_clock::rate_ppm(), start_state);
    TracedShard::new(core, header, sink)
}
