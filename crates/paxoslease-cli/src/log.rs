//! The log of nodes, on stderr: text for people, JSON for programs.

use std::io::{IsTerminal as _, stderr};

use anyhow::Context as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use crate::args::{LogArgs, LogFormat};

pub(crate) fn begin(args: &LogArgs, level_default: LevelFilter) -> anyhow::Result<()> {
    let filter = args.filter.clone();
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(level_default));
    let lines = fmt::layer().with_writer(stderr);
    let lines = match args.format {
        LogFormat::Text => {
            // https://no-color.org: set and not empty.
            let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            lines.with_ansi(stderr().is_terminal() && !is_plain).with_target(false).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    registry().with(lines.with_filter(filter)).try_init().context("cannot log")
}
