//! Relative links in the documents.

use std::collections::BTreeSet;

use crate::tidy::Finding;
use crate::tidy::markdown::links;
use crate::tidy::repository::{File, Repository};

/// Every relative link names a file of the repository and, with `#`, a heading in it.
pub(super) fn lead_somewhere(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.markdown() {
        for (number, target) in links(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let problem = problem(repository, file, &target);
            findings.extend(problem.map(|problem| file.finding(number, problem)));
        }
    }
    findings
}

fn problem(repository: &Repository, from: &File, target: &str) -> Option<String> {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { Some(from.path.clone()) } else { resolve(&from.path, path) };
    let Some(path) = path.filter(|path| repository.has(path)) else {
        return Some(format!("`{target}` leads nowhere"));
    };
    let file = repository.file(&path);
    let is_heading = heading.is_empty() || file.is_some_and(|file| slugs(file).contains(heading));
    (!is_heading).then(|| format!("`{path}` has no heading `#{heading}`"))
}

/// The path `link` names, seen from the file `from`; `None` when it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Headings as the usual renderers turn them into anchors.
fn slugs(file: &File) -> BTreeSet<String> {
    let headings = file.lines().filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}
