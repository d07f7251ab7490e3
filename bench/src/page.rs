//! A generated page: a Markdown template with placeholders for figures and tables, and its
//! pictures. All prose is in the template.
//!
//! `{{name}}` is a value. The lines between `{{#name}}` and `{{/name}}` are omitted if `name` has
//! no value, and so is a placeholder that is a paragraph of its own. Paragraphs and lists are
//! wrapped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

const COLUMNS: usize = 98;

/// A template, its values, and pictures by their path relative to the page.
#[derive(Debug)]
pub struct Page {
    name: &'static str,
    /// The command that writes the page.
    command: &'static str,
    template: &'static str,
    values: BTreeMap<String, String>,
    pictures: BTreeMap<String, String>,
}

/// The rows of a table, each with its cells.
pub trait Rows: IntoIterator<Item = Vec<String>> {}
impl<R: IntoIterator<Item = Vec<String>>> Rows for R {}

impl Page {
    pub fn new(name: &'static str, command: &'static str, template: &'static str) -> Self {
        let (values, pictures) = (BTreeMap::new(), BTreeMap::new());
        Self { name, command, template, values, pictures }
    }

    pub fn set(&mut self, name: &str, value: impl Display) {
        self.values.insert(name.to_owned(), value.to_string());
    }

    /// Sets a table. The first column is text, the others are figures. Skips an empty table.
    pub fn table<H: AsRef<str>>(&mut self, name: &str, head: &[H], rows: impl Rows) {
        self.aligned(name, &format!("|---|{}", "---:|".repeat(head.len() - 1)), head, rows);
    }

    /// Sets a table of text. Skips an empty table.
    pub fn listing<H: AsRef<str>>(&mut self, name: &str, head: &[H], rows: impl Rows) {
        self.aligned(name, &format!("|{}", "---|".repeat(head.len())), head, rows);
    }

    fn aligned<H: AsRef<str>>(&mut self, name: &str, rule: &str, head: &[H], rows: impl Rows) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
        let mut table = format!("| {} |\n{rule}", head.join(" | "));
        for row in rows {
            assert_eq!(row.len(), head.len(), "a cell for every column");
            table += &format!("\n| {} |", row.join(" | "));
        }
        self.set(name, table);
    }

    /// Adds a picture to which the template or a value links.
    pub fn keep(&mut self, path: &str, svg: String) {
        self.pictures.insert(path.to_owned(), svg);
    }

    /// The names of all values in the template.
    pub fn placeholders(&self) -> BTreeSet<&'static str> {
        placeholders(self.template).collect()
    }

    /// The page without its pictures.
    pub fn text(&self) -> Result<String> {
        let template = self.chosen()?;
        let blocks = template.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
        let blocks = blocks.filter(|block| !self.is_absent(block));
        let blocks = blocks.map(|block| self.block(block)).collect::<Result<Vec<_>>>()?;
        let text = blocks.join("\n\n") + "\n";
        for path in self.pictures.keys() {
            ensure!(text.contains(&format!("({path})")), "{}: no link to {path}", self.name);
        }
        Ok(text)
    }

    /// The template without the parts whose names have no value.
    fn chosen(&self) -> Result<String> {
        let known = self.placeholders();
        let unknown = self.values.keys().find(|name| !known.contains(name.as_str()));
        ensure!(unknown.is_none(), "{}: the template lacks {unknown:?}", self.name);
        let (mut chosen, mut left_out) = (String::new(), None);
        for line in self.template.lines() {
            let marker = line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}"));
            match (marker.and_then(|marker| marker.split_at_checked(1)), left_out) {
                (Some(("#", name)), None) => {
                    left_out = (!self.values.contains_key(name)).then_some(name);
                }
                (Some(("/", name)), Some(before)) if name == before => left_out = None,
                (Some(("/" | "#", _)), _) | (_, Some(_)) => {}
                (_, None) => chosen = chosen + line + "\n",
            }
        }
        Ok(chosen)
    }

    /// Whether a block is only a placeholder without a value.
    fn is_absent(&self, block: &str) -> bool {
        let name = block.strip_prefix("{{").and_then(|block| block.strip_suffix("}}"));
        name.is_some_and(|name| !name.contains('}') && !self.values.contains_key(name))
    }

    /// A paragraph, list, table, heading or picture.
    fn block(&self, block: &str) -> Result<String> {
        let text = self.filled(block)?;
        Ok(match text.as_bytes() {
            [b'#' | b'|' | b'!', ..] => text,
            [b'-', b' ', ..] => {
                let items = text.strip_prefix("- ").unwrap_or(&text).split("\n- ");
                let items = items.map(|item| wrapped(&format!("- {item}")).replace('\n', "\n  "));
                items.collect::<Vec<_>>().join("\n")
            }
            _ => wrapped(&text),
        })
    }

    fn filled(&self, block: &str) -> Result<String> {
        let mut parts = block.split("{{");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once("}}").context("a placeholder without its end")?;
            let value = self.values.get(name);
            text += value.with_context(|| format!("{}: no value for {name}", self.name))?;
            text += rest;
        }
        Ok(text)
    }

    fn files(&self) -> Result<BTreeMap<&str, String>> {
        let pictures = self.pictures.iter().map(|(path, svg)| (path.as_str(), svg.clone()));
        Ok(pictures.chain([(self.name, self.text()?)]).collect())
    }

    /// Writes the page and its pictures.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (path, text) in self.files()? {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Checks that the files in the folder are the same.
    pub fn check(&self, folder: &Path) -> Result<()> {
        let files = self.files()?;
        let differs = |(path, text): &(&&str, &String)| {
            std::fs::read_to_string(folder.join(path)).ok().as_ref() != Some(*text)
        };
        let stale: Vec<&str> = files.iter().filter(differs).map(|(path, _)| *path).collect();
        if !stale.is_empty() {
            bail!("out of date, `{}` writes them anew: {}", self.command, stale.join(", "));
        }
        Ok(())
    }
}

fn placeholders(template: &'static str) -> impl Iterator<Item = &'static str> {
    let names = template.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    names.map(|name| name.trim_start_matches(['#', '/']))
}

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= COLUMNS {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "# {{title}}\n\n{{#table}}\nA table of\n{{count}} rows:\n\n{{table}}\n\
                            \n![it](plots/a.svg)\n{{/table}}\n\n- one\n- two {{count}}\n";

    fn page() -> Page {
        let mut page = Page::new("a.md", "make a", TEMPLATE);
        page.set("title", "Title");
        page.set("count", 2);
        page
    }

    #[test]
    fn placeholders_are_filled_and_parts_without_value_omitted() {
        let mut page = page();
        assert_eq!(page.text().expect("a page"), "# Title\n\n- one\n- two 2\n");
        page.table("table", &["a", "b"], [vec!["1".to_owned(), "2".to_owned()]]);
        page.keep("plots/a.svg", "<svg/>".to_owned());
        let table = "| a | b |\n|---|---:|\n| 1 | 2 |";
        let expected = format!(
            "# Title\n\nA table of 2 rows:\n\n{table}\n\n![it](plots/a.svg)\n\n- one\n- two 2\n"
        );
        assert_eq!(page.text().expect("a page"), expected);
    }
}
