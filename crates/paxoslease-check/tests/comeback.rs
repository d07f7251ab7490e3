//! Plays the scripts of `comeback.txt`, for the rules whose harm takes many steps, with the core's
//! player of transcripts.

#[path = "../../paxoslease-core/tests/cell/mod.rs"]
mod cell;
#[path = "../../paxoslease-core/tests/transcripts/forge.rs"]
mod forge;
#[path = "../../paxoslease-core/tests/transcripts/scene.rs"]
mod scene;
#[path = "../../paxoslease-core/tests/transcripts/show.rs"]
mod show;
#[path = "../../paxoslease-core/tests/transcripts/words.rs"]
mod words;

use paxoslease_check::profiles::SCRIPTED;
use paxoslease_core::Rules;

#[test]
fn without_its_rule_a_script_does_harm() {
    scene::check("comeback.txt", |name| {
        let rule = SCRIPTED.into_iter().find(|rule| format!("{rule:?}") == name);
        Rules::without(rule.unwrap_or_else(|| panic!("{name} is not a scripted rule")))
    });
}

/// Harm is the grant or renewal at the end of a script.
#[test]
fn only_scripts_that_lack_a_rule_end_with_a_grant() {
    let scripts = include_str!("comeback.txt");
    for script in scripts.split("\n=== ").skip(1) {
        let last = script.trim_end().lines().last().unwrap_or_default();
        let is_harm = last.contains("granted") || last.contains("renewed");
        assert_eq!(is_harm, script.contains("without="), "{script}");
    }
    for rule in SCRIPTED {
        assert!(scripts.contains(&format!("without={rule:?}\n")), "{rule:?}");
    }
}
