//! Tables: columns under titles on a terminal, tab-separated elsewhere, with titles if there are so
//! many columns that a program should choose them by name.

use std::io::{IsTerminal as _, stdout};

/// A table that is printed in portions. Columns grow with their content and never shrink.
pub(crate) struct Table<const N: usize> {
    titles: Option<[&'static str; N]>,
    is_lined_up: bool,
    widths: [usize; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(titles: [&'static str; N]) -> Self {
        Self::to(stdout().is_terminal(), titles)
    }

    /// A table that has its titles everywhere.
    pub(crate) fn titled(titles: [&'static str; N]) -> Self {
        Self { titles: Some(titles), ..Self::new(titles) }
    }

    fn to(is_terminal: bool, titles: [&'static str; N]) -> Self {
        let widths = titles.map(str::len);
        let rows = Vec::new();
        Self { titles: is_terminal.then_some(titles), is_lined_up: is_terminal, widths, rows }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(row);
    }

    /// The rows since the last call; empty if there are none.
    pub(crate) fn take(&mut self) -> String {
        let mut text = String::new();
        if self.rows.is_empty() {
            return text;
        }
        if let Some(titles) = self.titles.take() {
            self.line(&mut text, &titles.map(str::to_owned));
        }
        for row in std::mem::take(&mut self.rows) {
            self.line(&mut text, &row);
        }
        text
    }

    fn line(&self, text: &mut String, row: &[String; N]) {
        if self.is_lined_up {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&self.widths) {
                line += &format!("{cell:<width$}  ");
            }
            *text += line.trim_end();
        } else {
            *text += &row.join("\t");
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portions(is_terminal: bool) -> [String; 3] {
        let mut table = Table::to(is_terminal, ["NAME", "N"]);
        let nothing = table.take();
        table.push(["a".into(), "1".into()]);
        table.push(["längst".into(), "22".into()]);
        let first = table.take();
        table.push(["b".into(), "3".into()]);
        [nothing, first, table.take()]
    }

    #[test]
    fn people_see_columns_under_titles() {
        assert_eq!(portions(true), ["", "NAME    N\na       1\nlängst  22\n", "b       3\n"]);
    }

    #[test]
    fn programs_see_tabs() {
        assert_eq!(portions(false), ["", "a\t1\nlängst\t22\n", "b\t3\n"]);
    }
}
