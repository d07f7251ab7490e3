//! `paxoslease watch`: the leases that are held, then a line per change, until stdout is closed.
//! All of it is hints.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{Either, select};
use paxoslease_client::{AskError, Change, Client, LeaseInfo, Watch};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::connect;
use super::events::Events;
use super::failure::Failure;
use super::look::object;
use super::text::{plain, short};
use crate::args::{AskArgs, PrefixArgs};
use crate::{Verdict, output};

/// The most leases of the list that are remembered.
const LISTED_MAX: usize = 100_000;

pub(crate) fn run(args: PrefixArgs) -> anyhow::Result<Verdict> {
    let PrefixArgs { prefix, ask: AskArgs { cell, json } } = args;
    let client = connect(&cell)?;
    let events = Events::begin()?;
    // A watch retries for ever, but a user wants to know at once that no node answers.
    check(&client)?;
    let mut watch = client.watch(&prefix);
    let mut refusal = None;
    // The fence of each lease that the list shows: its grant may be in the watch as well.
    let mut listed = BTreeMap::new();
    while let Either::Left(change) = next(&mut watch, &events) {
        let Some(change) = change else {
            // The watch ends only if the cell denies access.
            check(&client)?;
            let problem = refusal.unwrap_or_else(|| "the watch is over".to_owned());
            return Err(Failure::denied(problem).into());
        };
        if let Change::Held(lease) = &change
            && listed.remove(&lease.name) == Some(lease.fence)
        {
            continue;
        }
        if let Change::Disconnected { problem } = &change {
            refusal = Some(problem.clone());
        }
        let is_connected = matches!(change, Change::Connected { .. });
        if !print(&change, json)? {
            break;
        }
        if is_connected && !list(&client, &prefix, json, &mut listed)? {
            break;
        }
    }
    Ok(Verdict::Well)
}

/// Prints the leases that are held now, with the title `held`. Returns whether stdout is read.
fn list(
    client: &Client,
    prefix: &str,
    json: bool,
    listed: &mut BTreeMap<String, u64>,
) -> anyhow::Result<bool> {
    let mut list = client.list(prefix);
    // If the node cannot list them, the changes are still of use.
    while let Some(Ok(lease)) = list.next_blocking() {
        if listed.len() < LISTED_MAX {
            listed.insert(lease.name.clone(), lease.fence);
        }
        if !print(&Change::Held(lease), json)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints a change. Returns whether stdout is read.
fn print(change: &Change, json: bool) -> anyhow::Result<bool> {
    if json {
        let mut event = event(change);
        event["time"] = time().into();
        output::more_to_stdout(format!("{event}\n").as_bytes())
    } else {
        show(change)
    }
}

/// The time of day, in UTC, to the millisecond.
fn time() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_millisecond(now.millisecond()).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
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
    let report = |line: String| {
        output::to_stderr(&line);
        Ok(true)
    };
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
            let why = "they came faster than they were read";
            return report(format!("missed   {count} changes: {why}\n"));
        }
        Change::Connected { endpoint } => {
            return report(format!("watching at {endpoint}; Ctrl-C ends it\n"));
        }
        Change::Disconnected { problem } => {
            return report(format!("not connected: {problem}; trying again\n"));
        }
        _ => return Ok(true),
    };
    output::more_to_stdout(format!("{}  {line}", time()).as_bytes())
}

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
