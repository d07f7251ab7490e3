//! Acquires a lease that another client may hold, from a cell that may not answer yet: tries,
//! reports what it waits for, and waits.

use std::io::{IsTerminal as _, stderr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, FutureExt as _, select};
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_client::{Acquire, AcquireError, AskError, Client};

use super::alarm::{since_boot, sleep_until};
use super::events::Events;
use super::failure::{Failure, held};
use crate::args::{LeaseArgs, WaitArgs};
use crate::output;

/// The pause before a cell that could not answer is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How long a cell may take for its first answer, even if the wait is shorter.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long to wait for the withdrawal of a request that was not answered. A node withdraws it
/// anyway when the connection closes.
const WITHDRAWAL: Duration = Duration::from_millis(100);

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
        let acquire = waiting.permits.iter().fold(acquire, |acquire, n| acquire.permits(*n));
        args.holder.iter().fold(acquire, |acquire, holder| acquire.holder(holder))
    };
    let began_at = since_boot();
    let ends_at = began_at.saturating_add(waiting.wait_max());
    // Without a wait, the library bounds the one request.
    let answer_by = waiting.wait.map(|_| ends_at.max(began_at.saturating_add(ANSWER_TIME)));
    let failure = |error, has_waited| Failure::to_acquire(error, waiting, has_waited);
    let has_waited = waiting.wait.is_some();
    let answer = or_signal(events, client, answer_by, ask(acquire())).await?;
    let may_wait = since_boot() < ends_at;
    // The last reason that a node gave, which explains more than that no node answers.
    let mut refusal = None;
    let why = match answer {
        Some(Err(AcquireError::Held { holder, .. })) if may_wait => {
            held(&args.name, holder.as_ref())
        }
        Some(Err(AcquireError::Ask(error))) if may_wait && passes(&error) => {
            refusal = Some(error.clone()).filter(|error| !is_unreachable(error));
            Failure::from(error).to_string()
        }
        Some(answer) => return answer.map_err(|error| failure(error, has_waited)),
        None => return Err(no_answer(client, refusal).await),
    };
    let spinner = (!waiting.quiet).then(|| Waiting::begin(&why));
    loop {
        let rest = ends_at.saturating_sub(since_boot());
        let asking = ask(acquire().wait(rest));
        // The library ends the wait in time, and says which client holds the lease. If the reason
        // is known already, the answer adds nothing.
        let answer_by = refusal.as_ref().map(|_| ends_at);
        match or_signal(events, client, answer_by, asking).await? {
            // The library gives up early if it has reached no node at all.
            Some(Err(AcquireError::Ask(error))) if passes(&error) && since_boot() < ends_at => {
                let again_at = since_boot().saturating_add(RETRY_AFTER).min(ends_at);
                let pause = pin!(sleep_until(again_at));
                let _passed = or_signal(events, client, None, pause).await?;
            }
            Some(answer) => {
                drop(spinner);
                return answer.map_err(|error| match (error, refusal) {
                    (AcquireError::Ask(error), Some(refusal)) if is_unreachable(&error) => {
                        failure(refusal.into(), true)
                    }
                    (error, _) => failure(error, true),
                });
            }
            None => {
                drop(spinner);
                return Err(no_answer(client, refusal).await);
            }
        }
    }
}

/// The failure of a wait that ended without an answer. A lease that is granted all the same is
/// released, if that does not take long.
async fn no_answer(client: &Client, refusal: Option<AskError>) -> Failure {
    let patience = sleep_until(since_boot().saturating_add(WITHDRAWAL));
    select(pin!(client.shutdown()), pin!(patience)).await;
    let problem = "the cell did not answer before the end of the wait; `paxoslease status` says \
                   which nodes are unreachable";
    refusal.unwrap_or(AskError::NoQuorum(problem.into())).into()
}

const fn is_unreachable(error: &AskError) -> bool {
    matches!(error, AskError::Unreachable { .. })
}

/// Whether the reason may pass without a change by the user.
const fn passes(error: &AskError) -> bool {
    matches!(
        error,
        AskError::Unreachable { .. }
            | AskError::NoQuorum(_)
            | AskError::Quarantine(_)
            | AskError::Busy { .. }
    )
}

/// The output of a future, unless a signal comes first; `None` if it has none by `give_up_at`.
/// Dropping an acquire withdraws it.
async fn or_signal<T>(
    events: &Events,
    client: &Client,
    give_up_at: Option<Duration>,
    ask: impl Future<Output = T> + Unpin,
) -> Result<Option<T>, Failure> {
    let give_up = pin!(async {
        match give_up_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    });
    let answer = select(ask, give_up).map(|first| match first {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    });
    let signal = match select(answer, pin!(events.signal())).await {
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
