//! Getting a lease that somebody else may hold: ask, say who holds it, wait.

use std::io::{IsTerminal as _, stderr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_client::{Acquire, AcquireError, Acquiring, Client};

use super::events::Events;
use super::failure::{Failure, held};
use crate::args::{WaitArgs, WishArgs};
use crate::output;

/// How often the spinner turns.
const TURN: Duration = Duration::from_millis(120);

/// How long to wait, and what it exits with when that was in vain.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    wait: Duration,
    conflict_exit_code: u8,
}

impl Patience {
    /// As flock and its likes do unless told otherwise.
    pub(crate) const FOR_EVER: Self = Self { wait: Duration::MAX, conflict_exit_code: 1 };
}

impl From<&WaitArgs> for Patience {
    fn from(args: &WaitArgs) -> Self {
        let WaitArgs { wait, no_wait, conflict_exit_code } = *args;
        let wait = if no_wait { Duration::ZERO } else { wait.unwrap_or(Duration::MAX) };
        Self { wait, conflict_exit_code }
    }
}

/// Asks for a lease, in the way `ask` turns a wish into; says so when that takes time.
///
/// # Errors
/// Also when a signal asks this process to end: silently, with the code a shell would show.
pub(crate) async fn win<T>(
    (client, events): (&Client, &Events),
    args: &WishArgs,
    patience: Patience,
    ask: impl Fn(Acquire<'_>) -> Acquiring<T>,
) -> Result<T, Failure> {
    let wish = || {
        let wish = client.try_acquire(&args.name, args.ttl);
        args.holder.iter().fold(wish, |wish, holder| wish.holder(holder))
    };
    let Patience { wait, conflict_exit_code } = patience;
    let failure = |error, has_waited| Failure::to_acquire(error, conflict_exit_code, has_waited);
    let seen = match or_signal(events, client, ask(wish())).await? {
        Err(AcquireError::Held { seen, .. }) if !wait.is_zero() => seen,
        answer => return answer.map_err(|error| failure(error, false)),
    };
    let waiting = Waiting::begin(&held(&args.name, seen.as_ref()));
    let answer = or_signal(events, client, ask(wish().wait(wait))).await;
    drop(waiting);
    answer?.map_err(|error| failure(error, true))
}

/// The answer, unless a signal comes first.
async fn or_signal<T>(
    events: &Events,
    client: &Client,
    ask: Acquiring<T>,
) -> Result<Result<T, AcquireError>, Failure> {
    let signal = match select(ask, pin!(events.signal())).await {
        Either::Left((answer, _)) => return Ok(answer),
        // Dropping the wish takes it back, and whatever was granted meanwhile.
        Either::Right((signal, wish)) => {
            drop(wish);
            signal
        }
    };
    // That takes a moment, or longer if nobody answers; a second signal ends it.
    select(pin!(client.shutdown()), pin!(events.signal())).await;
    Err(Failure::by_signal(signal))
}

/// Says that this takes time: a line, and on a terminal a spinner.
struct Waiting(Option<ProgressBar>);

impl Waiting {
    fn begin(why: &str) -> Self {
        output::to_stderr(&format!("waiting: {why}\n"));
        if !stderr().is_terminal() {
            return Self(None);
        }
        let spinner = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed}, Ctrl-C gives up");
        spinner.set_style(style.expect("a template that was tried"));
        spinner.enable_steady_tick(TURN);
        Self(Some(spinner))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}
