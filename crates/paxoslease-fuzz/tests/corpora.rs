//! Every input that the fuzzer found worth keeping, without the fuzzer: what broke once, or led
//! somewhere new, does not break now.

use std::fs;
use std::path::{Path, PathBuf};

use paxoslease_fuzz::{TARGETS, is_served};

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn every_kept_input_still_does_no_harm() {
    for (name, body) in TARGETS {
        let folder = fs::read_dir(corpora().join(name)).unwrap_or_else(|error| {
            panic!("fuzz/corpus/{name} cannot be read: {error}");
        });
        let mut count = 0;
        for entry in folder {
            let path = entry.expect("readable").path();
            let bytes = fs::read(&path).expect("readable");
            // So that what panics can be told from what did not.
            println!("{}", path.display());
            body(&bytes);
            count += 1;
        }
        assert!(count > 0, "fuzz/corpus/{name} is empty");
    }
    assert!(is_served(), "the daemon survived all of that");
}

#[test]
fn every_corpus_has_a_target() {
    for entry in fs::read_dir(corpora()).expect("readable") {
        let name = entry.expect("readable").file_name();
        assert!(TARGETS.iter().any(|(target, _)| name == **target), "{name:?} has no target");
    }
}
