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

/// How long after the end of a wait its answer may come. Nodes end the wait themselves, and say
/// which client holds the lease.
const ANSWER_GRACE: Duration = Duration::from_millis(500);

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
    let wait = waiting.wait_max();
    let ends_at = since_boot().saturating_add(wait);
    // Without a wait, the library bounds the one request.
    let give_up_at = waiting.wait.map(|_| ends_at.saturating_add(ANSWER_GRACE));
    let failure = |error, has_waited| Failure::to_acquire(error, waiting, has_waited);
    // The last refusal by a node, which explains more than that no node answers.
    let mut refusal = None;
    let answer = or_signal(events, client, give_up_at, ask(acquire())).await?;
    let may_wait = since_boot() < ends_at;
    let why = match answer {
        Err(AcquireError::Held { holder, .. }) if may_wait => held(&args.name, holder.as_ref()),
        Err(AcquireError::Ask(error)) if may_wait && passes(&error) => {
            refusal = Some(error.clone()).filter(|error| !is_unreachable(error));
            Failure::from(error).to_string()
        }
        answer => return answer.map_err(|error| failure(error, waiting.wait.is_some())),
    };
    let spinner = (!waiting.quiet).then(|| Waiting::begin(&why));
    loop {
        let rest = ends_at.saturating_sub(since_boot());
        match or_signal(events, client, give_up_at, ask(acquire().wait(rest))).await? {
            // The library gives up early if it has reached no node at all.
            Err(AcquireError::Ask(error)) if passes(&error) && since_boot() < ends_at => {
                let again_at = since_boot().saturating_add(RETRY_AFTER).min(ends_at);
                let pause = pin!(sleep_until(again_at).map(Ok::<_, AcquireError>));
                let _passed = or_signal(events, client, None, pause).await?;
            }
            answer => {
                drop(spinner);
                return answer.map_err(|error| match (error, refusal) {
                    (AcquireError::Ask(error), Some(refusal)) if is_unreachable(&error) => {
                        failure(refusal.into(), true)
                    }
                    (error, _) => failure(error, true),
                });
            }
        }
    }
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

/// The answer, unless a signal comes first. After `give_up_at`, the answer is that none came.
async fn or_signal<T>(
    events: &Events,
    client: &Client,
    give_up_at: Option<Duration>,
    ask: impl Future<Output = Result<T, AcquireError>> + Unpin,
) -> Result<Result<T, AcquireError>, Failure> {
    let timeout = pin!(async {
        match give_up_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
        let problem = "the cell did not answer before the end of the wait; `paxoslease status` says \
                       which nodes are unreachable";
        Err(AskError::NoQuorum(problem.into()).into())
    });
    let answer = select(ask, timeout).map(|first| first.factor_first().0);
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
