//! `paxoslease acquire`, `renew` and `release`: a lease that outlives the command, usually for a
//! script. Only these commands renew and release it.

use std::future::IntoFuture as _;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;

use super::campaign::win;
use super::connect;
use super::events::Events;
use super::failure::Failure;
use crate::args::{AcquireArgs, ReleaseArgs, RenewArgs, TenureArgs};
use crate::{Verdict, output};

pub(crate) fn acquire(args: AcquireArgs) -> anyhow::Result<Verdict> {
    let client = connect(&args.ask.cell)?;
    let events = Events::begin()?;
    let ask = |acquire: paxoslease_client::Acquire<'_>| acquire.detached().into_future();
    let won = win(&client, &events, &args.lease, &args.wait, ask);
    let grant = paxoslease_client::block_on(won)?;
    let fence = grant.fence().to_string();
    let text = if args.ask.json {
        let (name, ttl_ms, waited_ms) =
            (&args.lease.name, millis(grant.ttl()), millis(grant.waited()));
        let holder = args.lease.holder.as_deref().unwrap_or(client.default_holder());
        let all = json!({"name": name, "fence": fence, "ttl_ms": ttl_ms, "waited_ms": waited_ms,
            "holder": holder});
        all.to_string()
    } else {
        fence
    };
    match output::more_to_stdout((text + "\n").as_bytes()) {
        Ok(true) => return Ok(Verdict::Well),
        unread => {
            // Without its fence the lease could not be renewed or released.
            let _over_in_time = client.release_blocking(&args.lease.name, grant.fence());
            unread?;
        }
    }
    bail!("stdout was closed before the fence was written, so the lease was released")
}

pub(crate) fn renew(args: RenewArgs) -> anyhow::Result<Verdict> {
    let RenewArgs { tenure: TenureArgs { name, fence }, ttl, ask } = args;
    let client = connect(&ask.cell)?;
    let grant = client.renew_blocking(&name, fence, ttl).map_err(Failure::from)?;
    if ask.json {
        let (fence, ttl_ms) = (fence.to_string(), millis(grant.ttl()));
        let all = json!({"name": name, "fence": fence, "ttl_ms": ttl_ms});
        output::to_stdout(&format!("{all}\n"))?;
    }
    Ok(Verdict::Well)
}

pub(crate) fn release(args: ReleaseArgs) -> anyhow::Result<Verdict> {
    let ReleaseArgs { tenure: TenureArgs { name, fence }, ask } = args;
    let client = connect(&ask.cell)?;
    client.release_blocking(&name, fence).map_err(Failure::from)?;
    if ask.json {
        let all = json!({"name": name, "fence": fence.to_string(), "released": true});
        output::to_stdout(&format!("{all}\n"))?;
    }
    Ok(Verdict::Well)
}

/// The number of milliseconds, for JSON.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
