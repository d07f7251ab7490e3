//! Conversations of a cell, as text files in `tests/transcripts/`: commands, and below each
//! command, indented, its outcome. `scene.rs` lists the commands.
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

/// All rules are in force: the exhaustive checker plays scenes without one.
fn check(file: &str) {
    scene::check(file, |rule| unreachable!("the core of these tests cannot lack {rule}"));
}

#[test]
fn typical_conversations() {
    check("transcripts/typical.txt");
}

#[test]
fn rounds() {
    check("transcripts/rounds.txt");
}

#[test]
fn waiting() {
    check("transcripts/waiting.txt");
}

#[test]
fn turns() {
    check("transcripts/turns.txt");
}

#[test]
fn holding() {
    check("transcripts/holding.txt");
}

#[test]
fn lost_messages() {
    check("transcripts/lost_messages.txt");
}

#[test]
fn record() {
    check("transcripts/record.txt");
}

#[test]
fn bad_input() {
    check("transcripts/bad_input.txt");
}

#[test]
fn exhaustion() {
    check("transcripts/exhaustion.txt");
}

/// One scene per normative sentence of the paper, where a scene can show it; see `paper.rs`.
#[test]
fn the_paper() {
    for section in ["definitions", "basic", "proof", "extending", "releasing"] {
        check(&format!("paper/{section}.txt"));
    }
}
