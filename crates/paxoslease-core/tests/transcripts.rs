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

use std::path::Path;
use std::{env, fs};

/// Plays every scene of a file and compares the outcomes with those in the file.
fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let expected = fs::read_to_string(&path).expect("a transcript");
    let played = scene::play(&expected);
    if env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(&path, played).expect("the transcript can be written");
        return;
    }
    let (mut title, mut expected) = ("", expected.lines());
    for played in played.lines() {
        title = played.strip_prefix("=== ").unwrap_or(title);
        assert_eq!(Some(played), expected.next(), "{file}, {title}: played, expected");
    }
    assert_eq!(expected.next(), None, "{file}, {title}: the file goes on");
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

/// One scene per normative sentence of the paper, where a scene can show it; see `paper.rs`.
#[test]
fn the_paper() {
    for section in ["definitions", "basic", "proof", "extending", "releasing"] {
        check(&format!("paper/{section}.txt"));
    }
}
