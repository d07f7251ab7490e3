//! The manual: a page for `paxoslease`, and one for each command.
//!
//! A page has what the help says, the long text of each option, its environment variable, and a
//! text of its own. A printed page refers to no other page: the others may not be installed.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::args::{Args, ManArgs};
use crate::output;

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let mut whole = Args::command();
    whole.build();
    let commands = || whole.get_subcommands().filter(|command| !command.is_hide_set());
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        return std::iter::once(&whole).chain(commands()).try_for_each(|one| write(one, folder));
    }
    let printed = match &args.command {
        None => Some(&whole),
        Some(name) => commands().find(|command| command.get_name() == name),
    };
    let Some(printed) = printed else {
        let names: Vec<&str> = commands().map(Command::get_name).collect();
        let message = format!("no such command; expected one of {}", names.join(", "));
        Args::definition().error(ErrorKind::InvalidValue, message).exit()
    };
    output::bytes_to_stdout(&page(printed, Others::MayBeMissing)?)
}

fn write(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(Man::new(command.clone()).get_filename());
    fs::write(&path, page(command, Others::AreInstalled)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Whether the other pages are where `man` finds them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    AreInstalled,
    MayBeMissing,
}

fn page(command: &Command, others: Others) -> anyhow::Result<Vec<u8>> {
    let source = format!("paxoslease {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    if let Some(text) = command.get_after_long_help() {
        let mut roff = Roff::new();
        roff.control("SH", ["DESCRIPTION"]);
        put_text(&mut roff, &text.to_string());
        roff.to_writer(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut roff = Roff::new();
    if command.has_subcommands() {
        roff.control("SH", ["COMMANDS"]);
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            entry(&mut roff, name, &about);
        }
    }
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        if !is_heading(text.lines().next().unwrap_or_default()) {
            roff.control("SH", ["NOTES"]);
        }
        put_text(&mut roff, &text);
    }
    if others == Others::AreInstalled {
        put_see_also(&mut roff, command);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

fn put_see_also(roff: &mut Roff, command: &Command) {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut pages: Vec<&str> = commands.filter_map(Command::get_display_name).collect();
    if pages.is_empty() {
        pages.push("paxoslease");
    }
    roff.control("SH", ["SEE ALSO"]);
    let references = pages.iter().enumerate().flat_map(|(place, page)| {
        [roman(if place == 0 { "" } else { ", " }), bold(*page), roman("(1)")]
    });
    roff.text(references.collect::<Vec<Inline>>());
}

fn is_heading(line: &str) -> bool {
    line.ends_with(':') && line.split(' ').count() <= 3
}

/// Writes a text of the help. It consists of paragraphs, of headings, which are up to three words
/// and a colon, and of blocks that are indented by two spaces. Exit codes get a heading.
fn put_text(roff: &mut Roff, text: &str) {
    let is_block = |line: &&str| line.starts_with("  ");
    let mut lines = text.lines().filter(|line| !line.starts_with("More: ")).peekable();
    let mut is_paragraph = false;
    while let Some(line) = lines.next() {
        if is_block(&line) {
            let mut block = vec![line];
            block.extend(std::iter::from_fn(|| lines.next_if(is_block)));
            put_block(roff, &block);
        } else if let Some(codes) = line.strip_prefix("Exit code: ") {
            roff.control("SH", ["EXIT STATUS"]);
            roff.text([roman(codes)]);
            is_paragraph = true;
            continue;
        } else if is_heading(line) {
            roff.control("SH", [line.trim_end_matches(':').to_uppercase().as_str()]);
        } else if !line.is_empty() {
            if !is_paragraph {
                roff.control("PP", []);
            }
            roff.text([roman(line)]);
        }
        is_paragraph = !(is_block(&line) || is_heading(line) || line.is_empty());
    }
}

/// Writes a block: commands or codes, each with its meaning after a gap or indented on the next
/// lines; or else lines that stay as they are.
fn put_block(roff: &mut Roff, block: &[&str]) {
    let is_meaning = |line: &str| line.starts_with("      ");
    let has_gap = |line: &&str| line.trim().contains("  ");
    let has_meanings = block.iter().any(has_gap)
        || block.windows(2).any(|pair| is_meaning(pair[1]) && !pair[0].ends_with('\\'));
    if !has_meanings {
        roff.control("PP", []);
        roff.control("nf", []);
        for line in block {
            roff.text([roman(*line)]);
        }
        roff.control("fi", []);
        return;
    }
    let mut lines = block.iter().map(|line| &line[2..]).peekable();
    while let Some(line) = lines.next() {
        let (term, meaning) = line.split_once("  ").unwrap_or((line, ""));
        let more = std::iter::from_fn(|| lines.next_if(|line| line.starts_with("    ")));
        let meaning: Vec<&str> = std::iter::once(meaning).chain(more).map(str::trim).collect();
        entry(roff, term, meaning.join(" ").trim());
    }
}

fn entry(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(meaning)]);
}
