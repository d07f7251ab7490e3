//! The page for people: the cell as this node sees it, which is a hint.
//!
//! Browsers without scripts get it as it is now. In other browsers a script keeps it up to date
//! through the same interface that all clients have. The page loads nothing from other hosts.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paxoslease_node::front::Cursor;
use paxoslease_node::{Membership, PeerStatus, Role, Status};
use sha2::{Digest as _, Sha256};

use super::App;
use super::cell::unready;
use super::input::Parameters;
use super::leases::Lease;
use super::permit::Permit;
use super::refusal::Refusal;
use super::watch::prefix;
use crate::text::is_hidden;

const TEMPLATE: &str = include_str!("page.html");
/// Leases shown without scripts.
const ROWS_MAX: u32 = 200;

/// Permits what is in the page and requests to this node. Script and style are identified by their
/// hashes, so markup that got into the page by mistake would do nothing.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        source("style"),
        source("script"),
    );
    HeaderValue::try_from(policy).expect("letters, digits and punctuation")
});

/// The hash of the only element of that kind in the template, as a policy names it.
fn source(tag: &str) -> String {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let inner = TEMPLATE.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let (inner, _) = inner.expect("the template has one of each");
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(inner)))
}

pub(super) async fn page(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    Parameters(fields): Parameters,
) -> Result<impl IntoResponse, Refusal> {
    let prefix = prefix(fields)?;
    let status = app.status().await?;
    let (mut leases, next) = app.page(&permit, &prefix, ROWS_MAX, Cursor::START).await?;
    leases.sort_by(|one, other| one.name.cmp(&other.name));
    let more = match next {
        Some(_) => "there are more: enter a longer prefix",
        None if leases.is_empty() => "no leases held",
        None => "",
    };
    let Summary { class, text: summary } = Summary::of(&status);
    let html = fill(&[
        ("title", format!("{} · PaxosLease", escape(&status.cell))),
        ("heading", format!("Cell {}", escape(&status.cell))),
        ("node", status.node.to_string()),
        ("class", class.to_owned()),
        ("summary", escape(&summary)),
        ("members", members(&status)),
        ("tiles", tiles(&status)),
        ("nodes", nodes(&status)),
        ("prefix", escape(&prefix)),
        ("leases", leases.iter().map(lease_row).collect()),
        ("more", more.to_owned()),
    ]);
    Ok(([(header::CONTENT_SECURITY_POLICY, POLICY.clone())], Html(html)))
}

/// Replaces `{{name}}` in the template. The texts that are put in are not searched again.
fn fill(texts: &[(&str, String)]) -> String {
    let mut page = String::with_capacity(2 * TEMPLATE.len());
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (key, after) = after.split_once("}}").expect("the template closes what it opens");
        let (_, text) = texts.iter().find(|(name, _)| *name == key).expect("the template's names");
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// The state of the cell in a sentence, and its colour.
struct Summary {
    class: &'static str,
    text: String,
}

impl Summary {
    fn of(status: &Status) -> Self {
        if let Some(refusal) = unready(status) {
            let is_quarantined = !status.quarantine_remaining.is_zero();
            let class = if is_quarantined { "wait" } else { "bad" };
            return Self { class, text: format!("✕ {refusal}") };
        }
        let is_missing = |peer: &&PeerStatus| !(peer.up && peer.quarantine_remaining.is_zero());
        let members = status.peers.iter().filter(|peer| status.members.contains(&peer.node));
        let missing: Vec<String> =
            members.filter(is_missing).map(|peer| format!("node {}", peer.node)).collect();
        if missing.is_empty() {
            let text = "● Ready: a majority votes and can be reached.".to_owned();
            return Self { class: "good", text };
        }
        let needed = status.members.len() / 2 + 1;
        let left = match status.members.len().saturating_sub(missing.len() + needed) {
            0 => "one more failure stops the cell".to_owned(),
            spare => format!("the cell survives {spare} more"),
        };
        let text = format!("▲ Ready, without {}: {left}.", missing.join(", "));
        Self { class: "wait", text }
    }
}

fn members(status: &Status) -> String {
    let ids = |nodes: &[u16]| nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
    let now = ids(&status.members);
    let epoch = match status.membership {
        Membership::Fixed => "fixed".to_owned(),
        _ => format!("epoch {}", status.epoch),
    };
    let Some(change) = &status.change else { return format!("Members {now} · {epoch}") };
    let (to, wait) = (ids(&change.to), change.wait_remaining);
    let left = match change.registers {
        _ if !wait.is_zero() => format!("{:.1} s left", wait.as_secs_f64()),
        0 => "about to end".to_owned(),
        left => format!("{left} registers of durable leases have not moved yet"),
    };
    format!("◷ The members change from {now} to {to} · {epoch} · {left}")
}

fn tiles(status: &Status) -> String {
    let tiles = [
        ("names kept", status.leases),
        ("waiting", status.waiters),
        ("acquires/s", status.rates.acquires),
        ("renewals/s", status.rates.renewals),
        ("releases/s", status.rates.releases),
    ];
    tiles.iter().fold(String::new(), |mut html, (name, value)| {
        write!(html, "<div><b>{value}</b><span class=soft>{name}</span></div>").expect("a string");
        html
    })
}

fn nodes(status: &Status) -> String {
    let own_state = match status.role {
        Role::Member => state(true, status.quarantine_remaining, part(status, status.node)),
        Role::Proposer => "● proposes, does not vote".to_owned(),
    };
    let own = row(&[&status.node.to_string(), "this node", &own_state, "", ""]);
    let peers = status.peers.iter().map(|peer| {
        let rtt = peer.rtt.map_or(String::new(), |rtt| format!("{} µs", rtt.as_micros()));
        let html = row(&[
            &peer.node.to_string(),
            peer.address.as_deref().unwrap_or_default(),
            &state(peer.up, peer.quarantine_remaining, part(status, peer.node)),
            &rtt,
            peer.problem.as_deref().unwrap_or_default(),
        ]);
        (peer.node, html)
    });
    let mut rows: Vec<(u16, String)> = peers.chain([(status.node, own)]).collect();
    rows.sort();
    rows.into_iter().map(|(_, html)| html).collect()
}

/// Whether a node is a member, or becomes one.
fn part(status: &Status, node: u16) -> &'static str {
    let joins = || status.change.as_ref().is_some_and(|change| change.to.contains(&node));
    match status.members.contains(&node) {
        true => "",
        false if joins() => ", joins",
        false => ", not a member",
    }
}

fn state(up: bool, quarantine: Duration, part: &str) -> String {
    match (up, quarantine.is_zero()) {
        (false, _) => "✕ unreachable".to_owned(),
        (true, true) => format!("● up{part}"),
        (true, false) => format!("◷ quarantined, {:.1} s", quarantine.as_secs_f64()),
    }
}

fn lease_row(lease: &Lease) -> String {
    let left = match u64::try_from(lease.ttl_ms) {
        Ok(millis) => format!("{:.1} s", Duration::from_millis(millis).as_secs_f64()),
        Err(_) => "for ever".to_owned(),
    };
    row(&[&lease.name, &lease.holder, &lease.fence, &left])
}

fn row(cells: &[&str]) -> String {
    let cells: String = cells.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
    format!("<tr>{cells}</tr>")
}

/// Names and holders are texts of users, and may look like markup, or hide what follows.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut html, c| {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if is_hidden(c) => html.extend(c.escape_unicode()),
            c => html.push(c),
        }
        html
    })
}
