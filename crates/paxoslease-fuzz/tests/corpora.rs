//! Runs every kept input without the fuzzer: inputs that once failed, are at a bound, or reached
//! new code.

use std::fs;
use std::path::{Path, PathBuf};

use paxoslease_fuzz::{
    TARGETS, config, daemons_answer, frame, hello, resp, shard, snapshot, stable,
};
use proptest::prelude::*;

/// Inputs that reached new code, of the greatest length, and that once failed.
const KINDS: [&str; 3] = ["corpus", "bounds", "regressions"];

fn inputs_of(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind)
}

#[test]
fn every_kept_input_still_does_no_harm() {
    for (name, body) in TARGETS {
        for kind in KINDS {
            let Ok(folder) = fs::read_dir(inputs_of(kind).join(name)) else {
                assert_ne!(kind, "corpus", "fuzz/corpus/{name} cannot be read");
                continue;
            };
            let mut count = 0;
            for entry in folder {
                let path = entry.expect("readable").path();
                let bytes = fs::read(&path).expect("readable");
                // The last path printed is that of the input that panics.
                println!("{}", path.display());
                body(&bytes);
                count += 1;
            }
            assert!(count > 0, "fuzz/{kind}/{name} is empty");
        }
    }
    assert!(daemons_answer(), "the daemon survived all of that");
}

#[test]
fn everything_kept_has_a_target() {
    for kind in KINDS {
        for entry in fs::read_dir(inputs_of(kind)).expect("readable") {
            let name = entry.expect("readable").file_name();
            assert!(TARGETS.iter().any(|(target, _)| name == **target), "{name:?} has no target");
        }
    }
}

proptest! {
    /// The targets that need no daemon and no structure, also where the fuzzer itself never runs.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for target in [config, frame, hello, resp, shard, snapshot, stable] {
            target(&bytes);
        }
    }
}
