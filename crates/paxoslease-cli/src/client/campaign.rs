//! Acquires a lease that another client may hold: tries, reports the holder, and waits.

use std::io::{IsTerminal as _, stderr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_client::{Acquire, AcquireError, Client};

use super::events::Events;
use super::failure::{Failure, held};
use crate::args::{LeaseArgs, WaitArgs};
use crate::output;

/// The interval of the spinner.
const TURN: Duration = Duration::from_millis(120);

/// Acquires a lease; `ask` turns the request into a future. Prints a line if it has to wait.
///
/// # Errors
/// When the lease cannot be acquired, or when a signal ends the wait: silently, with the exit code
/// that a shell would show.
pub(crate) async fn win<T, F>(
    client: &Client,
    events: &Events,
    args: &LeaseArgs,
    waiting: &WaitArgs,
    ask: impl Fn(Acquire<'_>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, AcquireError>> + Unpin,
{
    let acquire = || {
        let acquire = client.try_acquire(&args.name, args.ttl);
        args.holder.iter().fold(acquire, |acquire, holder| acquire.holder(holder))
    };
    let (wait, code) = (waiting.wait_max(), waiting.conflict_exit_code);
    let failure = |error, has_waited| Failure::to_acquire(error, code, has_waited);
    let holder = match or_signal(events, client, ask(acquire())).await? {
        Err(AcquireError::Held { holder, .. }) if !wait.is_zero() => holder,
        answer => return answer.map_err(|error| failure(error, false)),
    };
    let waiting = Waiting::begin(&held(&args.name, holder.as_ref()));
    let answer = or_signal(events, client, ask(acquire().wait(wait))).await;
    drop(waiting);
    answer?.map_err(|error| failure(error, true))
}

/// The answer, unless a signal comes first.
async fn or_signal<T>(
    events: &Events,
    client: &Client,
    ask: impl Future<Output = Result<T, AcquireError>> + Unpin,
) -> Result<Result<T, AcquireError>, Failure> {
    let signal = match select(ask, pin!(events.signal())).await {
        Either::Left((answer, _)) => return Ok(answer),
        // Dropping the request withdraws it, and releases a lease that was granted meanwhile.
        Either::Right((signal, acquiring)) => {
            drop(acquiring);
            signal
        }
    };
    // The withdrawal takes a moment, or longer if no node answers. A second signal ends it.
    select(pin!(client.shutdown()), pin!(events.signal())).await;
    Err(Failure::by_signal(signal))
}

/// Shows that the command waits: a line, and on a terminal a spinner.
struct Waiting(Option<ProgressBar>);

impl Waiting {
    fn begin(why: &str) -> Self {
        output::to_stderr(&format!("waiting: {why}\n"));
        if !stderr().is_terminal() {
            return Self(None);
        }
        let spinner = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed}, Ctrl-C gives up");
        spinner.set_style(style.expect("a valid template"));
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
