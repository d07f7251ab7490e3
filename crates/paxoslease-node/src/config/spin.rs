//! The setting `spin`.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use thiserror::Error;

use super::document::TomlText;
use super::{DurationError, parse_duration};

/// More than a round trip between threads that are awake, and less than it costs to wake one.
const AUTO: Duration = Duration::from_micros(50);

/// How long a shard looks for work before it sleeps. It stops looking where nothing arrives soon,
/// or where another thread needs the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spin {
    /// For up to 50 us; not at all on a machine with one core.
    #[default]
    Auto,
    /// Not at all: a thread without work sleeps at once.
    Off,
    /// For up to this time.
    UpTo(Duration),
}

impl Spin {
    /// The longest time to look for work.
    pub(crate) fn most(self) -> Duration {
        match self {
            Self::Auto
                if thread::available_parallelism()
                    .is_ok_and(|cores| cores == NonZeroUsize::MIN) =>
            {
                Duration::ZERO
            }
            Self::Auto => AUTO,
            Self::Off => Duration::ZERO,
            Self::UpTo(most) => most,
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::UpTo(most) => write!(f, "{most:?}"),
        }
    }
}

/// Why a text is not a value of `spin`, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpinError {
    /// A text without a digit, so it was not meant as a time.
    #[error("{0:?} is not valid; write auto, off or a time such as 50us")]
    Word(String),
    /// A time that is not valid.
    #[error("{0}; auto and off are valid, too")]
    Time(#[from] DurationError),
}

impl FromStr for Spin {
    type Err = SpinError;

    fn from_str(text: &str) -> Result<Self, SpinError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            word if !word.contains(|c: char| c.is_ascii_digit()) => {
                Err(SpinError::Word(word.to_owned()))
            }
            time => Ok(Self::UpTo(parse_duration(time)?)),
        }
    }
}

impl TomlText for Spin {
    const EXPECTED: &'static str = "\"auto\", \"off\" or a duration in quotes, such as \"20us\"";
}
