//! `paxoslease elect`: becomes a candidate, leads until stopped and then resigns; or shows the
//! leaders.

use std::future::IntoFuture as _;
use std::pin::pin;

use futures_util::future::{Either, select};
use paxoslease_client::{Client, Election, LeaderChange, LeaseGuard};
use serde_json::json;

use super::campaign::win;
use super::connect;
use super::events::Events;
use super::failure::{Failure, LOST};
use super::lock::release;
use super::supervise::{self, Job, policy};
use super::text::{plain, quoted};
use crate::args::{ElectArgs, WaitArgs};
use crate::{Verdict, output, trust};

pub(crate) fn run(args: ElectArgs) -> anyhow::Result<Verdict> {
    let policy = policy(&args.loss, args.lease.ttl)?;
    let client = connect(&args.cell)?;
    let events = Events::begin()?;
    if args.listen {
        return paxoslease_client::block_on(listen(&args, &client, &events));
    }
    let won =
        win(&client, &events, &args.lease, &WaitArgs::FOR_EVER, |acquire| acquire.into_future());
    let mut lease = match paxoslease_client::block_on(won) {
        // It never led, so there is nothing to release.
        Err(failure) if failure.is_by_signal() => return Ok(Verdict::Well),
        won => won?,
    };
    output::to_stdout(&line(&args, lease.holder(), lease.fence()))?;
    let ended = if args.command.is_empty() {
        paxoslease_client::block_on(lead(&lease, &events)).map(|()| Verdict::Well)
    } else {
        let environment = trust::environment(&args.cell.trust, args.pass_token);
        let endpoints = client.endpoints();
        let job = Job { command: &args.command, policy, endpoints, environment };
        supervise::run(&job, &mut lease, &events).map(Verdict::Code)
    };
    release(lease, &events, ended.is_ok());
    ended
}

fn line(args: &ElectArgs, holder: &str, fence: u64) -> String {
    let name = &args.lease.name;
    if args.json {
        let fence = fence.to_string();
        format!("{}\n", json!({"name": name, "fence": fence, "holder": holder}))
    } else {
        format!("{}  fence {fence}  {}\n", plain(name), plain(holder))
    }
}

/// Leads until a signal asks it to stop.
async fn lead(lease: &LeaseGuard, events: &Events) -> anyhow::Result<()> {
    match select(pin!(lease.lost()), pin!(events.signal())).await {
        Either::Right(_) => Ok(()),
        Either::Left(_) => {
            let (name, fence) = (quoted(lease.name()), lease.fence());
            let problem =
                "is lost, and another candidate may lead; run the command again to be a candidate";
            Err(Failure::new(LOST, format!("{name} (fence {fence}) {problem}")).into())
        }
    }
}

/// Prints a line per leader.
async fn listen(args: &ElectArgs, client: &Client, events: &Events) -> anyhow::Result<Verdict> {
    let election = Election::new(client, args.lease.name.as_str());
    // An observer waits for ever, but a user wants to know at once that no node answers.
    let mut known = election.leader().await.map_err(Failure::from)?;
    let mut observer = election.observe();
    let mut shown = None;
    loop {
        if let Some(leader) = known.take_if(|leader| shown.as_ref() != Some(leader)) {
            output::to_stdout(&line(args, &leader.holder, leader.fence))?;
            shown = Some(leader);
        }
        known = match select(pin!(observer.next()), pin!(events.signal())).await {
            Either::Left((Some(LeaderChange::Elected(leader)), _)) => Some(leader),
            Either::Left((Some(LeaderChange::Vacant), _)) => None,
            Either::Left((None, _)) | Either::Right(_) => return Ok(Verdict::Well),
        };
    }
}
