//! Knobs for tests that break whole processes: a clock that runs at another rate, and one safety
//! rule switched off. Both are read from the environment, and only in a build with the feature
//! `chaos`, which no release has. The harness itself shows that they work: it finds the harm.

use paxoslease_core::{Rule, Rules};

use crate::config::Settings;

/// How many parts per million too fast the clock runs; negative is too slow.
const CLOCK: &str = "PAXOSLEASE_CLOCK_PPM";
/// The rule that is off, as the core spells it.
const RULE: &str = "PAXOSLEASE_WITHOUT_RULE";

/// How far the clock of this process is off.
pub(crate) fn clock_ppm() -> i64 {
    let Ok(text) = std::env::var(CLOCK) else { return 0 };
    let ppm = text.parse().ok().filter(|ppm: &i64| ppm.abs() < 1_000_000);
    ppm.unwrap_or_else(|| panic!("{CLOCK}={text}: expected -999999 to 999999, such as 500"))
}

/// What the clock shows instead of `nanos`.
pub(crate) fn scaled(nanos: u64, ppm: i64) -> u64 {
    (i128::from(nanos) * i128::from(1_000_000 + ppm) / 1_000_000) as u64
}

/// The settings under the rules of this process.
pub(crate) fn with_rules(mut settings: Settings) -> Settings {
    let Ok(text) = std::env::var(RULE) else { return settings };
    let rule = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == text);
    let rule = rule.unwrap_or_else(|| panic!("{RULE}={text}: no such rule; see rules.rs"));
    tracing::warn!(?rule, "a safety rule is off: this build is for tests");
    settings.rules = Rules::without(rule);
    settings
}
