//! The figures, for people and for machines. A goal stands beside its figure, and nothing here
//! fails when one is missed: that is for the reader to judge.

use std::fmt;

use serde_json::{Map, Value, json};

/// All sections, in the order they are printed.
#[derive(Debug, Default)]
pub struct Report(Vec<Section>);

/// Figures that belong together.
#[derive(Debug)]
pub struct Section {
    title: String,
    key: &'static str,
    figures: Vec<Figure>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    goal: Option<Goal>,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(max) => value <= max,
            Self::AtLeast(min) => value >= min,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(max) => write!(f, "<= {}", readable(*max)),
            Self::AtLeast(min) => write!(f, ">= {}", readable(*min)),
        }
    }
}

impl Section {
    /// An empty one; machines know it by its key.
    pub fn new(key: &'static str, title: impl Into<String>) -> Self {
        Self { title: title.into(), key, figures: Vec::new(), notes: Vec::new() }
    }

    /// Adds a figure.
    pub fn figure(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { what: what.into(), value, unit, goal: None });
    }

    /// Adds a figure that has a goal.
    pub fn goal(&mut self, what: impl Into<String>, value: f64, unit: &'static str, goal: Goal) {
        self.figures.push(Figure { what: what.into(), value, unit, goal: Some(goal) });
    }

    /// Adds a line for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// What machines know it by.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// For machines: figures by their names.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let figures: Map<String, Value> = self
            .figures
            .iter()
            .map(|Figure { what, value, unit, goal }| {
                let mut figure = json!({ "value": value, "unit": unit });
                if let Some(goal) = goal {
                    figure["goal"] = json!(goal.to_string());
                    figure["met"] = json!(goal.is_met(*value));
                }
                (what.clone(), figure)
            })
            .collect();
        json!({ "title": self.title, "figures": figures, "notes": self.notes })
    }
}

impl Report {
    /// Adds a section.
    pub fn add(&mut self, section: Section) {
        self.0.push(section);
    }

    /// For machines: sections by their keys.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.0.iter().map(|s| (s.key.to_owned(), s.to_json())).collect())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|section| writeln!(f, "{section}"))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for Figure { what, value, unit, goal } in &self.figures {
            write!(f, "  {what:<52} {:>14} {unit:<14}", readable(*value))?;
            match goal {
                Some(goal) if goal.is_met(*value) => writeln!(f, " goal {goal}: met")?,
                Some(goal) => writeln!(f, " goal {goal}: MISSED")?,
                None => writeln!(f)?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

/// Three significant digits or all whole ones, in groups of three.
fn readable(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_rounded_to_what_is_worth_reading() {
        assert_eq!(readable(1_234_567.8), "1 234 568");
        assert_eq!(readable(82.94), "82.9");
        assert_eq!(readable(0.0), "0.00");
        assert_eq!(readable(-123.0), "-123");
    }
}
