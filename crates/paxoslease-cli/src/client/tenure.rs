//! `paxoslease acquire`, `renew` and `release`: a lease that outlives the command, usually for a
//! script. Only these commands renew and release it.

use std::future::IntoFuture as _;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::bail;
use paxoslease_client::{Client, ReleaseError};
use serde_json::json;

use super::campaign::win;
use super::connect;
use super::events::Events;
use super::failure::{Failure, held};
use super::text::quoted;
use crate::args::{AcquireArgs, ReleaseArgs, RenewArgs};
use crate::{Verdict, output};

pub(crate) fn acquire(args: AcquireArgs) -> anyhow::Result<Verdict> {
    let client = connect(&args.ask.cell)?;
    let events = Events::begin()?;
    let ask = |acquire: paxoslease_client::Acquire<'_>| acquire.detached().into_future();
    let won = win(&client, &events, &args.lease, &args.wait, ask);
    let grant = paxoslease_client::block_on(won)?;
    let fence = grant.fence().to_string();
    let text = if args.ask.json {
        let (name, ttl_ms, waited_ms) = (grant.name(), millis(grant.ttl()), millis(grant.waited()));
        let holder = args.lease.holder.as_deref().unwrap_or(client.default_holder());
        let all = json!({"name": name, "fence": fence, "ttl_ms": ttl_ms, "waited_ms": waited_ms,
            "holder": holder});
        all.to_string()
    } else if args.wait.permits.is_some() {
        format!("{} {fence}", grant.name())
    } else {
        fence
    };
    match output::more_to_stdout((text + "\n").as_bytes()) {
        Ok(true) => return Ok(Verdict::Well),
        unread => {
            // Without its fence the lease could not be renewed or released.
            let _over_in_time = client.release_blocking(grant.name(), grant.fence());
            unread?;
        }
    }
    bail!("stdout was closed before the fence was written, so the lease was released")
}

pub(crate) fn renew(args: RenewArgs) -> anyhow::Result<Verdict> {
    let RenewArgs { name, fence, ttl, ask } = args;
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
    let ReleaseArgs { name, fence, force, yes, ask } = args;
    let client = connect(&ask.cell)?;
    let fence = match fence {
        Some(fence) if !force => {
            client.release_blocking(&name, fence).map_err(Failure::from)?;
            fence
        }
        fence => {
            let fence = fence_to_force(&client, &name, fence, yes)?;
            // The old holder may renew a lease whose release no majority confirmed.
            client.force_release_blocking(&name, fence).map_err(|error| match error {
                ReleaseError::Unconfirmed(error) => error.into(),
                error => Failure::from(error),
            })?;
            fence
        }
    };
    if ask.json {
        let all = json!({"name": name, "fence": fence.to_string(), "released": true});
        output::to_stdout(&format!("{all}\n"))?;
    }
    Ok(Verdict::Well)
}

/// The fence of the tenure to release by force, once the user has agreed.
fn fence_to_force(
    client: &Client,
    name: &str,
    fence: Option<u64>,
    is_agreed: bool,
) -> Result<u64, Failure> {
    let (fence, held) = match fence {
        Some(fence) => (fence, format!("{} may be held with fence {fence}", quoted(name))),
        None => {
            let seen = client.get_blocking(name).map_err(Failure::from)?;
            let free = || Failure::new(1, format!("no client holds {}", quoted(name)));
            let seen = seen.ok_or_else(free)?;
            (seen.fence, held(name, Some(&seen)))
        }
    };
    if is_agreed {
        return Ok(fence);
    }
    if !io::stdin().is_terminal() {
        let problem = "--force asks before it acts, but stdin is not a terminal; add --yes";
        return Err(Failure::usage(problem));
    }
    output::to_stderr(&format!(
        "{held}.\nThe holder is not told before its next renewal, and may work on until then. \
         Another client can\nacquire the lease at once. Only a store that checks fences keeps the \
         old holder out.\nRelease it by force? [y/N] "
    ));
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(fence),
        _ => Err(Failure::new(1, "nothing was released")),
    }
}

/// The number of milliseconds, for JSON.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
