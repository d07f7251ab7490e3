//! What `members` prints about a change: lines for people, one of which is drawn again on a
//! terminal, or objects for programs.

use std::io::{IsTerminal as _, stdout};

use paxoslease_client::{ChangeStatus, MembersPlan, NodeStatus};
use serde_json::{Value, json};

use super::{ids, left, these};
use crate::client::text::span;
use crate::output;

pub(super) struct Report {
    is_json: bool,
    is_terminal: bool,
    /// How wide the second column is.
    width: usize,
    /// Whether the last line is not finished, because it will be drawn again.
    is_open: bool,
    /// Whether a line about the progress was printed.
    has_begun: bool,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        let is_terminal = stdout().is_terminal() && !is_json;
        Self { is_json, is_terminal, width: 10, is_open: false, has_begun: false }
    }

    /// What the change leads to.
    pub(super) fn plan(&mut self, plan: &MembersPlan) -> anyhow::Result<()> {
        if self.is_json {
            let mut object = json!(plan);
            object["event"] = "plan".into();
            return object_line(&object);
        }
        let (from, to) = (ids(&plan.from), ids(&plan.to));
        let during = format!("{from} > {to}");
        self.width = during.len().max(10) + 2;
        self.line("now", &from, &survives(&plan.from, plan))?;
        let (old, new) = (majority(&plan.from), majority(&plan.to));
        let needs = format!("needs {old} of {from} and {new} of {to}; about {}", span(plan.takes));
        self.line("during", &during, &needs)?;
        self.line("then", &to, &survives(&plan.to, plan))?;
        if !plan.quarantined.is_empty() {
            self.line("", "", &format!("no vote yet from {}", these(&plan.quarantined)))?;
        }
        if !plan.unreachable.is_empty() {
            self.line("", "", &format!("no answer from {}", these(&plan.unreachable)))?;
        }
        Ok(())
    }

    /// What the user would have to confirm.
    pub(super) fn doubts(&mut self, plan: &MembersPlan) -> anyhow::Result<()> {
        match &plan.doubts[..] {
            [] => Ok(()),
            _ if self.is_json => Ok(()),
            doubts => output::to_stdout(&format!("needs --yes: {}\n", doubts.join("; "))),
        }
    }

    pub(super) fn begun(&mut self, epoch: u32, is_left_alone: bool) -> anyhow::Result<()> {
        if self.is_json {
            return object_line(&json!({"event": "begun", "epoch": epoch}));
        }
        let then = if is_left_alone { "begun: see `paxoslease members status`" } else { "" };
        self.line(&format!("epoch {epoch}"), "joint", then)
    }

    pub(super) fn draining(
        &mut self,
        status: &NodeStatus,
        change: &ChangeStatus,
    ) -> anyhow::Result<()> {
        if self.is_json {
            let mut object = json!(change);
            object["event"] = "draining".into();
            object["epoch"] = status.epoch.into();
            return object_line(&object);
        }
        if self.has_begun && !self.is_terminal {
            return Ok(());
        }
        self.has_begun = true;
        let adopted = match &change.adopted[..] {
            adopted if change.leads => format!("; adopted by {}", ids(adopted)),
            _ => String::new(),
        };
        let leases = output::grouped(status.leases);
        let leases = format!("{leases} lease{}", if status.leases == 1 { "" } else { "s" });
        let text = format!("{}; {leases}{adopted}", left(change));
        if !self.is_terminal {
            return self.line("", "draining", &text);
        }
        self.is_open = true;
        let width = self.width;
        output::to_stdout(&format!("\r\u{1b}[K{:<9}{:<width$}{text}", "", "draining"))
    }

    /// Ends the line that is drawn again.
    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.is_open) { output::to_stdout("\n") } else { Ok(()) }
    }

    pub(super) fn done(&mut self, epoch: u32, plan: &MembersPlan) -> anyhow::Result<()> {
        let gone: Vec<u16> =
            plan.from.iter().filter(|node| !plan.to.contains(node)).copied().collect();
        if self.is_json {
            return object_line(&json!({"event": "done", "epoch": epoch, "members": plan.to}));
        }
        let mut text = format!("the members are {}", ids(&plan.to));
        if !gone.is_empty() {
            let are = if gone.len() == 1 { "is" } else { "are" };
            text += &format!("; {} {are} not needed any more", these(&gone));
        }
        self.line(&format!("epoch {epoch}"), "done", &text)
    }

    pub(super) fn aborted(&mut self, epoch: u32, members: &[u16]) -> anyhow::Result<()> {
        if self.is_json {
            return object_line(&json!({"event": "aborted", "epoch": epoch, "members": members}));
        }
        self.pause()
    }

    /// The end of a change that is one decision.
    pub(super) fn end(&mut self, epoch: u32, members: &[u16], action: &str) -> anyhow::Result<()> {
        if self.is_json {
            return object_line(&json!({"event": "done", "epoch": epoch, "members": members}));
        }
        let what = if action == "abort" { "the change was aborted: " } else { "" };
        self.line(
            &format!("epoch {epoch}"),
            "done",
            &format!("{what}the members are {}", ids(members)),
        )
    }

    fn line(&mut self, label: &str, what: &str, text: &str) -> anyhow::Result<()> {
        self.pause()?;
        let width = self.width;
        let line = format!("{label:<9}{what:<width$}{text}");
        output::to_stdout(&format!("{}\n", line.trim_end()))
    }
}

fn object_line(object: &Value) -> anyhow::Result<()> {
    output::to_stdout(&format!("{object}\n"))
}

/// How many members may fail.
fn survives(members: &[u16], plan: &MembersPlan) -> String {
    let is_missing =
        |node: &&u16| plan.unreachable.contains(node) || plan.quarantined.contains(node);
    let missing = members.iter().filter(is_missing).count();
    match ((members.len() - 1) / 2).checked_sub(missing) {
        None => "has no majority".to_owned(),
        Some(0) => "survives no loss".to_owned(),
        Some(losses) => format!("survives the loss of {losses}"),
    }
}

/// A word, because ids are numbers, too.
fn majority(members: &[u16]) -> &'static str {
    ["none", "one", "two", "three", "four", "five"][(members.len() / 2 + 1).min(5)]
}
