//! Requests of administrators to change the members of a cell, and the answers.

use std::time::Duration;

use serde::Serialize;

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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MembersPlan {
    /// The epoch of the node.
    pub epoch: u32,
    /// The members now.
    pub from: Vec<u16>,
    /// The members after the change.
    pub to: Vec<u16>,
    /// Members that are not connected.
    pub unreachable: Vec<u16>,
    /// About how long the change takes.
    #[serde(rename = "takes_ms", serialize_with = "millis")]
    pub takes: Duration,
    /// Why the change cannot begin.
    pub problems: Vec<String>,
    /// What the administrator has to confirm.
    pub doubts: Vec<String>,
    /// The epoch that the change led to; `None` if nothing was decided.
    pub decided: Option<u32>,
}

/// Why a request about members failed. Nothing was changed, unless the text says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
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
}
