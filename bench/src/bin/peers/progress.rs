//! How far it is, for people, on a terminal only: in the time that everything is expected to take.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where to say how far it is.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of something that is expected to take so long.
    pub(crate) fn new(expected: Duration) -> Self {
        let style = "{elapsed} [{bar:30}] {percent:>3} %, {eta} left  {wide_msg}";
        let style = ProgressStyle::with_template(style).expect("a template that was tried");
        let bar = ProgressBar::new(millis(expected)).with_style(style.progress_chars("=> "));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// What it is at.
    pub(crate) fn at(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Done with what was expected to take so long.
    pub(crate) fn done(&self, expected: Duration) {
        self.0.inc(millis(expected));
    }

    /// Something that is to stay on the screen.
    pub(crate) fn note(&self, what: &str) {
        self.0.suspend(|| eprintln!("{what}"));
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn millis(span: Duration) -> u64 {
    span.as_millis() as u64
}
