//! `paxoslease watch`: a line per change, until stdout is closed. All of it is hints.

use std::pin::pin;

use futures_util::future::{Either, select};
use paxoslease_client::{AskError, Change, Client, LeaseInfo, Watch};
use serde_json::{Value, json};

use super::connect;
use super::events::Events;
use super::failure::Failure;
use super::look::object;
use super::text::{plain, short};
use crate::args::{AskArgs, PrefixArgs};
use crate::{Verdict, output};

pub(crate) fn run(args: PrefixArgs) -> anyhow::Result<Verdict> {
    let PrefixArgs { prefix, ask: AskArgs { cell, json } } = args;
    let client = connect(&cell)?;
    let events = Events::begin()?;
    // A watch retries for ever, but a user wants to know at once that no node answers.
    check(&client)?;
    let mut watch = client.watch(&prefix);
    let mut refusal = None;
    while let Either::Left(change) = next(&mut watch, &events) {
        let Some(change) = change else {
            // The watch ends only if the cell denies access.
            check(&client)?;
            let problem = refusal.unwrap_or_else(|| "the watch is over".to_owned());
            return Err(Failure::denied(problem).into());
        };
        if let Change::Disconnected { problem } = &change {
            refusal = Some(problem.clone());
        }
        let is_read = if json {
            output::more_to_stdout(format!("{}\n", event(&change)).as_bytes())?
        } else {
            show(&change)?
        };
        if !is_read {
            break;
        }
    }
    Ok(Verdict::Well)
}

/// Whether a node answers, even if it denies the request.
fn check(client: &Client) -> Result<(), Failure> {
    match client.status_blocking() {
        Ok(_) | Err(AskError::Denied(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The next change, unless a signal comes first.
fn next(watch: &mut Watch, events: &Events) -> Either<Option<Change>, i32> {
    paxoslease_client::block_on(async {
        match select(pin!(watch.next()), pin!(events.signal())).await {
            Either::Left((change, _)) => Either::Left(change),
            Either::Right((signal, _)) => Either::Right(signal),
        }
    })
}

/// Prints a change for people: leases on stdout, the state of the watch on stderr.
fn show(change: &Change) -> anyhow::Result<bool> {
    let line = match change {
        Change::Held(LeaseInfo { name, holder, fence, remaining }) => {
            let (name, holder, left) = (plain(name), plain(holder), short(*remaining));
            format!("held     {name}  fence {fence}  {left}  {holder}\n")
        }
        Change::Freed { name } => format!("freed    {}\n", plain(name)),
        Change::Expired { name, fence } => {
            format!("expired  {}  fence {fence}\n", plain(name))
        }
        Change::Missed(count) => {
            let line = format!("missed   {count} changes: they came faster than they were read\n");
            output::to_stderr(&line);
            return Ok(true);
        }
        Change::Connected { endpoint } => {
            output::to_stderr(&format!("watching at {endpoint}; Ctrl-C ends it\n"));
            return Ok(true);
        }
        Change::Disconnected { problem } => {
            output::to_stderr(&format!("not connected: {problem}; trying again\n"));
            return Ok(true);
        }
        _ => return Ok(true),
    };
    output::more_to_stdout(line.as_bytes())
}

/// The JSON object of a change.
fn event(change: &Change) -> Value {
    match change {
        Change::Held(seen) => {
            let mut event = object(seen);
            event["event"] = "held".into();
            event
        }
        Change::Freed { name } => json!({"event": "freed", "name": name}),
        Change::Expired { name, fence } => {
            json!({"event": "expired", "name": name, "fence": fence.to_string()})
        }
        Change::Missed(count) => json!({"event": "missed", "count": count}),
        Change::Connected { endpoint } => json!({"event": "connected", "endpoint": endpoint}),
        Change::Disconnected { problem } => json!({"event": "disconnected", "problem": problem}),
        change => json!({"event": "other", "text": format!("{change:?}")}),
    }
}
