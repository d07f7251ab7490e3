//! Every input that was kept, without the fuzzer: what broke once, or stands at a bound, or led
//! somewhere new, does not break now.

use std::fs;
use std::path::{Path, PathBuf};

use paxoslease_fuzz::{TARGETS, is_served};

/// What leads somewhere new, what is as long as can be, and what once broke.
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
                // So that what panics can be told from what did not.
                println!("{}", path.display());
                body(&bytes);
                count += 1;
            }
            assert!(count > 0, "fuzz/{kind}/{name} is empty");
        }
    }
    assert!(is_served(), "the daemon survived all of that");
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
