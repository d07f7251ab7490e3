//! Requests of administrators to change the members of a cell, and the answers.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::AskError;
use crate::status::millis;

/// How the members of a cell should change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembersChange {
    /// Removes some members and adds others, by id and address.
    Edit {
        /// The members that leave.
        remove: Vec<u16>,
        /// The members that come.
        add: Vec<(u16, String)>,
    },
    /// All members after the change. One that stays may come without its address.
    Set(Vec<(u16, Option<String>)>),
    /// The addresses at which other nodes reach members.
    Address(Vec<(u16, String)>),
    /// Ends the change that is under way, so that the members stay those before it.
    Abort,
}

impl MembersChange {
    /// Reads a change from an action and nodes: `add 4=HOST:PORT`, `remove 3`,
    /// `replace 3 4=HOST:PORT`, `set 1 2 4=HOST:PORT`, `address 2=HOST:PORT`, or `abort`.
    ///
    /// # Errors
    /// Names the word that does not fit, and what would.
    pub fn parse<'a>(
        action: &str,
        nodes: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, MembersError> {
        let refused = |text: String| Err(MembersError::Refused(text));
        let (mut plain, mut placed) = (Vec::new(), Vec::new());
        let mut all = Vec::new();
        for word in nodes {
            let (id, address) = match word.split_once('=') {
                Some((id, address)) => (id, Some(address.to_owned())),
                None => (word, None),
            };
            let Some(id) = id.parse().ok().filter(|id| (1..=1023).contains(id)) else {
                return refused(format!("{word:?} is not a node: write ID or ID=HOST:PORT"));
            };
            match &address {
                Some(address) => placed.push((id, address.clone())),
                None => plain.push(id),
            }
            all.push((id, address));
        }
        let action = action.to_ascii_lowercase();
        let wants = match (&*action, plain.is_empty(), placed.is_empty()) {
            ("add" | "address", true, false)
            | ("remove", false, true)
            | ("replace", false, false)
            | ("abort", true, true) => None,
            ("set", ..) if !all.is_empty() => None,
            ("add" | "address", ..) => Some("nodes as ID=HOST:PORT"),
            ("remove", ..) => Some("the ids of members"),
            ("replace", ..) => Some("the ids of members that leave, and others as ID=HOST:PORT"),
            ("set", ..) => Some("all members, and those that are new as ID=HOST:PORT"),
            ("abort", ..) => Some("no nodes"),
            _ => {
                return refused(format!(
                    "{action:?} is no action: use add, remove, replace, set, address or abort"
                ));
            }
        };
        if let Some(wants) = wants {
            return refused(format!("{action} needs {wants}"));
        }
        Ok(match &*action {
            "set" => Self::Set(all),
            "address" => Self::Address(placed),
            "abort" => Self::Abort,
            _ => Self::Edit { remove: plain, add: placed },
        })
    }

    /// The action and the nodes, as [`Self::parse`] reads them.
    #[must_use]
    pub fn words(&self) -> (&'static str, Vec<String>) {
        let placed = |(id, address): &(u16, String)| format!("{id}={address}");
        match self {
            Self::Edit { remove, add } => {
                let action = match (remove.is_empty(), add.is_empty()) {
                    (true, _) => "add",
                    (false, true) => "remove",
                    (false, false) => "replace",
                };
                let nodes = remove.iter().map(u16::to_string).chain(add.iter().map(placed));
                (action, nodes.collect())
            }
            Self::Set(list) => {
                let node = |(id, address): &(u16, Option<String>)| match address {
                    Some(address) => format!("{id}={address}"),
                    None => id.to_string(),
                };
                ("set", list.iter().map(node).collect())
            }
            Self::Address(list) => ("address", list.iter().map(placed).collect()),
            Self::Abort => ("abort", Vec::new()),
        }
    }
}

/// A request of an administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MembersRequest {
    /// The change.
    pub change: MembersChange,
    /// Whether to check only.
    pub dry_run: bool,
    /// Whether to go on although the cell would survive fewer losses.
    pub yes: bool,
}

/// What a change leads to, and whether it can begin.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MembersPlan {
    /// The epoch of the node.
    pub epoch: u32,
    /// The members now.
    pub from: Vec<u16>,
    /// The members after the change.
    pub to: Vec<u16>,
    /// Members that are not connected.
    pub unreachable: Vec<u16>,
    /// Members that were restarted and do not vote yet.
    pub quarantined: Vec<u16>,
    /// About how long the change takes.
    #[serde(rename = "takes_ms", serialize_with = "millis", deserialize_with = "from_millis")]
    pub takes: Duration,
    /// Why the change cannot begin.
    pub problems: Vec<String>,
    /// What the administrator has to confirm.
    pub doubts: Vec<String>,
    /// The epoch that the change led to; `None` if nothing was decided.
    pub decided: Option<u32>,
}

fn from_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// Why a request about members failed. Nothing was changed, unless the text says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// The change is not possible.
    #[error("{0}")]
    Refused(String),
    /// The change is possible, and the administrator has to confirm it.
    #[error("{0}")]
    Unconfirmed(String),
    /// No majority of the members answered.
    #[error("{0}")]
    NoQuorum(String),
    /// No node answered. If the request was sent, the change may have begun.
    #[error(transparent)]
    Ask(#[from] AskError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_change_are_read_as_that_change() {
        for line in [
            "add 4=a:1 5=[::1]:2",
            "remove 3 2",
            "replace 3 4=a:1",
            "set 1 2 4=a:1",
            "address 2=b:1",
            "abort",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let change = MembersChange::parse(words[0], words[1..].iter().copied());
            let (action, nodes) = change.as_ref().expect("fits").words();
            let again = MembersChange::parse(action, nodes.iter().map(String::as_str));
            assert_eq!(again, change, "{line}");
            assert_eq!([&[action.to_owned()], &nodes[..]].concat().join(" "), line);
        }
    }

    #[test]
    fn nodes_that_do_not_fit_the_action_are_refused() {
        for (action, node, problem) in [
            ("add", "4", "add needs nodes as ID=HOST:PORT"),
            ("remove", "4=a:1", "remove needs the ids of members"),
            ("replace", "4=a:1", "replace needs the ids of members that leave"),
            ("abort", "4", "abort needs no nodes"),
            ("set", "0", "\"0\" is not a node"),
            ("grow", "4", "\"grow\" is no action"),
        ] {
            let error = MembersChange::parse(action, [node]).expect_err(action).to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
