//! `paxoslease get` and `list`: who holds which lease. All of it is hints.
//!
//! A list is printed page by page, so a million leases take no more memory than one page.

use paxoslease_client::LeaseInfo;
use serde_json::{Value, json};

use super::connect;
use super::failure::Failure;
use super::table::Table;
use super::tenure::millis;
use super::text::{plain, quoted, short};
use crate::args::{AskArgs, GetArgs, PrefixArgs};
use crate::{Verdict, output};

/// How many leases are requested, and aligned in columns, at a time.
const PAGE_LEN: u32 = 500;

const TITLES: [&str; 4] = ["NAME", "HOLDER", "FENCE", "LEFT"];

pub(crate) fn get(args: GetArgs) -> anyhow::Result<Verdict> {
    let GetArgs { name, ask: AskArgs { cell, json } } = args;
    let client = connect(&cell)?;
    let seen = client.get_blocking(&name).map_err(Failure::from)?;
    let seen = seen.ok_or_else(|| Failure::new(1, format!("no client holds {}", quoted(&name))))?;
    if json {
        output::to_stdout(&format!("{}\n", object(&seen)))?;
    } else {
        let mut table = Table::new(TITLES);
        table.push(row(&seen));
        output::to_stdout(&table.take())?;
    }
    Ok(Verdict::Well)
}

pub(crate) fn list(args: PrefixArgs) -> anyhow::Result<Verdict> {
    let PrefixArgs { prefix, ask: AskArgs { cell, json } } = args;
    let mut list = connect(&cell)?.list(&prefix).page_len(PAGE_LEN);
    let mut table = Table::new(TITLES);
    let mut lines = String::new();
    loop {
        let mut next = None;
        for _ in 0..PAGE_LEN {
            next = list.next_blocking().transpose().map_err(Failure::from)?;
            match &next {
                Some(seen) if json => lines += &format!("{}\n", object(seen)),
                Some(seen) => table.push(row(seen)),
                None => break,
            }
        }
        let page = if json { std::mem::take(&mut lines) } else { table.take() };
        let is_read = output::more_to_stdout(page.as_bytes())?;
        if next.is_none() || !is_read {
            return Ok(Verdict::Well);
        }
    }
}

/// The JSON object. A fence is a string, because it exceeds the precision of JSON numbers.
pub(super) fn object(seen: &LeaseInfo) -> Value {
    let LeaseInfo { name, holder, fence, remaining } = seen;
    let ttl_ms = millis(*remaining);
    json!({"name": name, "holder": holder, "fence": fence.to_string(), "ttl_ms": ttl_ms})
}

fn row(seen: &LeaseInfo) -> [String; 4] {
    let LeaseInfo { name, holder, fence, remaining } = seen;
    [plain(name).into(), plain(holder).into(), fence.to_string(), short(*remaining)]
}
