//! A measured page being written, and the files that belong to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};

/// Text so far, and pictures by their path beside it.
#[derive(Debug)]
pub struct Page {
    name: &'static str,
    /// What writes it anew.
    command: &'static str,
    text: String,
    pictures: BTreeMap<String, String>,
}

impl Page {
    /// A page that begins with these words.
    #[must_use]
    pub fn new(name: &'static str, command: &'static str, introduction: &str) -> Self {
        Self { name, command, text: introduction.to_owned(), pictures: BTreeMap::new() }
    }

    /// A heading of a section.
    pub fn heading(&mut self, text: &str) {
        writeln!(self.text, "\n## {text}").expect("a String takes every text");
    }

    /// A heading within a section.
    pub fn subheading(&mut self, text: &str) {
        writeln!(self.text, "\n### {text}").expect("a String takes every text");
    }

    /// A paragraph, in lines as long as those of the other documents.
    pub fn say(&mut self, text: &str) {
        self.put(&wrapped(text));
    }

    fn put(&mut self, block: &str) {
        writeln!(self.text, "\n{}", block.trim_end()).expect("a String takes every text");
    }

    /// A list, an item each.
    pub fn list(&mut self, items: &[String]) {
        let items = items.iter().map(|item| wrapped(&format!("- {item}")).replace('\n', "\n  "));
        self.put(&items.collect::<Vec<_>>().join("\n"));
    }

    /// A picture with the words that stand for it where it cannot be seen.
    pub fn picture(&mut self, path: &str, words: &str, svg: String) {
        self.put(&format!("![{words}]({path})"));
        self.keep(path, svg);
    }

    /// A picture the text links to.
    pub fn keep(&mut self, path: &str, svg: String) {
        self.pictures.insert(path.to_owned(), svg);
    }

    /// A table; the first column is text, the others are figures.
    ///
    /// # Panics
    /// When a row has more cells or fewer than the head.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.aligned(&format!("|---|{}", "---:|".repeat(head.len() - 1)), head, rows);
    }

    /// A table of text.
    ///
    /// # Panics
    /// When a row has more cells or fewer than the head.
    pub fn listing(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.aligned(&format!("|{}", "---|".repeat(head.len())), head, rows);
    }

    fn aligned(&mut self, rule: &str, head: &[&str], rows: &[Vec<String>]) {
        let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
        let mut table = format!("{}{rule}\n", line(head));
        for row in rows {
            assert_eq!(row.len(), head.len(), "a cell for every column");
            table += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        self.put(&table);
    }

    /// What was written so far, without the pictures.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let pictures = self.pictures.iter().map(|(path, svg)| (path.as_str(), svg.as_str()));
        pictures.chain([(self.name, self.text.as_str())])
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        for (path, text) in self.files() {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Whether the folder holds exactly this.
    ///
    /// # Errors
    /// When it does not; says what differs.
    pub fn check(&self, folder: &Path) -> anyhow::Result<()> {
        let differs = |(path, text): &(&str, &str)| {
            std::fs::read_to_string(folder.join(path)).ok().as_deref() != Some(text)
        };
        let stale: Vec<&str> = self.files().filter(differs).map(|(path, _)| path).collect();
        if !stale.is_empty() {
            bail!("out of date, `{}` writes them anew: {}", self.command, stale.join(", "));
        }
        Ok(())
    }
}

const COLUMNS: usize = 100;

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= COLUMNS - 2 {
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

    #[test]
    fn no_line_is_longer_than_the_documents_lines() {
        let text = wrapped(&"a few words ".repeat(40));
        assert!(text.lines().count() > 1);
        assert!(text.lines().all(|line| line.len() <= COLUMNS));
        assert_eq!(text.split_whitespace().count(), 120);
    }

    #[test]
    fn a_check_tells_which_file_is_out_of_date() {
        let folder = std::env::temp_dir().join(format!("page-{}", std::process::id()));
        let mut page = Page::new("a.md", "make a", "# Title\n");
        page.picture("plots/a.svg", "a", "<svg/>".to_owned());
        page.write(&folder).expect("a writable folder");
        page.check(&folder).expect("just written");
        page.keep("plots/a.svg", "<svg></svg>".to_owned());
        let stale = page.check(&folder).expect_err("it differs").to_string();
        assert!(stale.ends_with("plots/a.svg"), "{stale}");
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
