//! The commands in documents exist.

use clap::Parser;
use clap::error::ErrorKind;

use crate::Cli;
use crate::tidy::Finding;
use crate::tidy::markdown::snippets;
use crate::tidy::repository::Repository;
use crate::tidy::rust::{code, variants};

const CLI: &str = "crates/paxoslease-cli/src/";

/// Options with which `cargo run` means another binary than ours.
const OTHER_BINARY: &[&str] = &["-p", "--package", "--bin", "--example", "--manifest-path"];

#[derive(PartialEq, Eq, Debug)]
enum Typed<'a> {
    Xtask(Vec<&'a str>),
    Binary(&'a str),
}

/// Every `cargo xtask ..` parses, and every subcommand of the binary exists.
pub(super) fn exist(repository: &Repository) -> Vec<Finding> {
    let known = subcommands(repository);
    let mut findings = Vec::new();
    for file in repository.markdown() {
        for snippet in snippets(&file.text) {
            let text = snippet.text.replace("&&", ";").replace(" #", ";#");
            for command in text.split([';', '|']) {
                let problem = match typed(command) {
                    Some(Typed::Xtask(args)) => xtask_refuses(&args),
                    Some(Typed::Binary(name)) if !known.iter().any(|known| known == name) => {
                        Some(format!("`paxoslease {name}` does not exist"))
                    }
                    _ => None,
                };
                findings.extend(problem.map(|problem| file.finding(snippet.line, problem)));
            }
        }
    }
    findings
}

fn typed(command: &str) -> Option<Typed<'_>> {
    // A placeholder such as `<task>` or `[--deep]` ends what can be checked.
    let is_plain = |word: &&str| !word.starts_with(['<', '[', '(']);
    let is_setting = |word: &&str| word.contains('=') && word.starts_with(char::is_uppercase);
    let words = command.trim().trim_start_matches("$ ").split_whitespace();
    let words: Vec<&str> = words.skip_while(is_setting).take_while(is_plain).collect();
    match words.as_slice() {
        ["cargo", "xtask", args @ ..] => Some(Typed::Xtask(args.to_vec())),
        ["cargo", "run", options @ ..] => {
            let end = options.iter().position(|word| *word == "--")?;
            let is_ours = !options[..end].iter().any(|word| OTHER_BINARY.contains(word));
            options.get(end + 1).filter(|_| is_ours).and_then(|word| subcommand(word))
        }
        ["paxoslease", word, ..] => subcommand(word),
        _ => None,
    }
}

fn subcommand(word: &str) -> Option<Typed<'_>> {
    word.starts_with(|c: char| c.is_ascii_lowercase()).then_some(Typed::Binary(word))
}

/// Asks clap itself.
fn xtask_refuses(args: &[&str]) -> Option<String> {
    let error = Cli::try_parse_from(["cargo xtask"].iter().chain(args)).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => None,
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Some(format!("`cargo xtask {}`: {first}", args.join(" ")))
        }
    }
}

/// The enums of the command line whose variants are subcommands.
const ENUMS: [&str; 2] = ["Command", "ClientCommand"];

/// The variants of [`ENUMS`], spelt as clap spells them.
fn subcommands(repository: &Repository) -> Vec<String> {
    let files = repository.rust().filter(|file| file.path.starts_with(CLI));
    let texts: Vec<String> = files.map(|file| code(&file.text)).collect();
    let found =
        texts.iter().flat_map(|text| ENUMS.into_iter().flat_map(move |name| variants(text, name)));
    found.map(|(_, variant)| kebab(&variant)).chain(["help".to_owned()]).collect()
}

fn kebab(variant: &str) -> String {
    let mut out = String::new();
    for (place, c) in variant.char_indices() {
        if c.is_uppercase() && place > 0 {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out
}
