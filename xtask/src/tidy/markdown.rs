//! Markdown as far as the checks read it: code, prose, links and tables.

use crate::tidy::repository::numbered;

/// A line of a shell block or a code span, without its marks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Snippet {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Whether each line stands in a fenced block, and in one of what language. The fences themselves
/// are left out.
fn blocks(text: &str) -> impl Iterator<Item = (usize, &str, Option<&str>)> {
    let mut language = None;
    numbered(text).filter_map(move |(number, line)| match line.trim_start().strip_prefix("```") {
        Some(opened) => {
            language = if language.is_some() { None } else { Some(opened.trim()) };
            None
        }
        None => Some((number, line, language)),
    })
}

/// Lines of shell blocks or of blocks without a language, and code spans.
pub(super) fn snippets(text: &str) -> Vec<Snippet> {
    let mut found = Vec::new();
    for (line, content, language) in blocks(text) {
        match language {
            Some("" | "sh" | "bash" | "console") => {
                found.push(Snippet { line, text: content.trim().to_owned() });
            }
            Some(_) => {}
            None => {
                let spans = content.split('`').skip(1).step_by(2);
                found.extend(spans.map(|span| Snippet { line, text: span.to_owned() }));
            }
        }
    }
    found
}

/// Targets of inline links outside code, without titles.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line, language) in blocks(text) {
        if language.is_some() {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for (start, _) in prose.match_indices("](") {
            let target = &prose[start + 2..];
            let target = &target[..target.find([')', ' ']).unwrap_or(target.len())];
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// The lines under the first heading that starts with `heading`, up to the next of its level.
pub(super) fn section<'a>(text: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let level = heading.split(' ').next().unwrap_or_default();
    let next = format!("{level} ");
    let prose = blocks(text).map(|(number, line, _)| (number, line));
    prose
        .skip_while(|(_, line)| !line.starts_with(heading))
        .skip(1)
        .take_while(|(_, line)| !line.starts_with(&next))
        .collect()
}

/// The cells of a table's row; `None` for other lines and for the rule under the head.
pub(super) fn row(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    if inner.chars().all(|c| "-|: ".contains(c)) {
        return None;
    }
    Some(inner.split('|').map(str::trim).collect())
}

/// The code spans of a line.
pub(super) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
