//! `paxoslease acquire`, `renew` and `release`: a lease that outlives the command, usually for a
//! script. Only these commands renew and release it.

use std::future::IntoFuture as _;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::bail;
use paxoslease_client::{Acquire, Client, ReleaseError};
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
    let durable = args.durable.map(lasting);
    let ask = |acquire: Acquire<'_>| {
        durable.into_iter().fold(acquire, Acquire::durable).detached().into_future()
    };
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
            let _over_in_time =
                release_own(&client, grant.name(), grant.fence(), durable.is_some());
            unread?;
        }
    }
    bail!("stdout was closed before the fence was written, so the lease was released")
}

pub(crate) fn renew(args: RenewArgs) -> anyhow::Result<Verdict> {
    let RenewArgs { name, fence, ttl, durable, ask } = args;
    let client = connect(&ask.cell)?;
    let renewed = match durable {
        Some(durable) => client.keep_blocking(&name, fence, lasting(durable)),
        None => client.renew_blocking(&name, fence, ttl),
    };
    let grant = renewed.map_err(Failure::from)?;
    if grant.fence() != fence && !ask.json {
        output::to_stderr(&format!("warning: the fence is now {}\n", grant.fence()));
    }
    if ask.json {
        let (fence, ttl_ms) = (grant.fence().to_string(), millis(grant.ttl()));
        let all = json!({"name": name, "fence": fence, "ttl_ms": ttl_ms});
        output::to_stdout(&format!("{all}\n"))?;
    }
    Ok(Verdict::Well)
}

pub(crate) fn release(args: ReleaseArgs) -> anyhow::Result<Verdict> {
    let ReleaseArgs { name, fence, force, yes, durable, ask } = args;
    let client = connect(&ask.cell)?;
    let fence = match fence {
        Some(fence) if !force => {
            release_own(&client, &name, fence, durable).map_err(Failure::from)?;
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

fn release_own(
    client: &Client,
    name: &str,
    fence: u64,
    is_durable: bool,
) -> Result<(), ReleaseError> {
    if is_durable {
        client.release_durable_blocking(name, fence)
    } else {
        client.release_blocking(name, fence)
    }
}

/// How long a durable lease lasts: for ever unless given.
fn lasting(durable: Duration) -> Duration {
    if durable.is_zero() { Duration::MAX } else { durable }
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

/// The number of milliseconds, for JSON; -1 for ever.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(-1)
}
