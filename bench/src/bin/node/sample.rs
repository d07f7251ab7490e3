//! The same figure from several turns: its middle, and how far the turns lie apart.

/// Figures of turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// For the reader: from where to where.
    pub(crate) fn spread(&self, decimals: usize) -> String {
        format!("{:.decimals$} to {:.decimals$}", self.min(), self.max())
    }
}
