//! Switches one safety rule off, for the chaos harness. The rule is read from the environment, only
//! in a build with the feature `chaos`, which no release has. The harness itself shows that it
//! works: it finds the harm.

use paxoslease_core::{Rule, Rules};

use crate::config::Settings;

/// The variable with the rule, as the core spells it.
const RULE: &str = "PAXOSLEASE_WITHOUT_RULE";

/// The settings under the rules of this process.
pub(crate) fn with_rules(mut settings: Settings) -> Settings {
    let Ok(text) = std::env::var(RULE) else { return settings };
    let rule = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == text);
    let rule = rule.unwrap_or_else(|| panic!("{RULE}={text}: no such rule; see rules.rs"));
    tracing::warn!(?rule, "a safety rule is off: this build is for tests");
    settings.rules = Rules::without(rule);
    settings
}
