//! Conversations of a cell, as text files in `tests/transcripts/` and `tests/paper/`: commands, and
//! below each command, indented, its outcome. `scene.rs` lists the commands.
//!
//! A transcript that differs fails the test. If the change is intended and understood, rewrite the
//! files with `UPDATE_TRANSCRIPTS=1 cargo test -p paxoslease-core --test transcripts`.

mod cell;
#[path = "transcripts/forge.rs"]
mod forge;
#[path = "transcripts/scene.rs"]
mod scene;
#[path = "transcripts/show.rs"]
mod show;
#[path = "transcripts/words.rs"]
mod words;

/// Plays every transcript of a folder with all rules in force: the exhaustive checker plays scenes
/// without one.
fn check(folder: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let files = path.read_dir().expect("a folder").map(|entry| entry.expect("a file").file_name());
    let names = files.map(|name| name.into_string().expect("text"));
    let transcripts: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
    assert!(!transcripts.is_empty());
    for name in transcripts {
        scene::check(&format!("{folder}/{name}"), |rule| unreachable!("the core lacks {rule}"));
    }
}

#[test]
fn every_conversation_goes_as_written() {
    check("transcripts");
}

/// One scene per normative sentence of the paper (sections 1 to 8), named after it. Where
/// docs/protocol.md departs from the paper, the scene shows the difference and cites the rule that
/// asks for it. A sentence that only motivates has no scene.
#[test]
fn every_sentence_of_the_paper_holds() {
    check("paper");
}
