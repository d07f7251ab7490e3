//! Configurations of arbitrary text. An error has a line that exists and a reason; a configuration
//! that parses is checked. Nothing panics.

use paxoslease_node::parse_duration;
use paxoslease_server::Config;

/// Arbitrary text as a configuration file and as values of options.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::from_toml(text) {
        Ok(config) => {
            if let Err(error) = config.check() {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(error) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line()), "{error}");
            assert!(!error.problem().is_empty());
        }
    }
    let mut config = Config::new(paxoslease_node::Config::new("", 0));
    if let Err(error) = config.set_limit(text) {
        assert!(!error.problem().is_empty());
    }
    if let Err(error) = parse_duration(text) {
        assert!(!error.to_string().is_empty());
    }
}
