//! Why a data folder cannot be used, and what the operator can do (R6).

use std::io;
use std::path::PathBuf;

use paxoslease_core::NodeId;

/// What an operator has to know before a reset.
const RESET: &str = "\nIf it is lost for good, start a node with an id that was never used and an \
    empty data_dir, and put it in the place of this one with `paxoslease members replace`. To use \
    this folder for that, start the new node once with --reset-stable-record (in Rust: \
    reset_stable_record).\nRead the section on data_dir in docs/operating.md before";

/// Why a node cannot start on its data folder. The stable record was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StableError {
    /// Another process has the folder.
    #[error(
        "the data folder {} is in use by {}. Two nodes on one folder would use the same ballots \
         twice, so this one does not start. Stop the other, or give this one a folder of its own",
        path.display(), process(*pid)
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process, if it has written its id there.
        pid: Option<u32>,
    },
    /// The record is missing, and there was one.
    #[error(
        "the stable record {} is gone, although one was written.\nWithout it this node knows \
         neither its ballots nor the longest lease that it accepted, so it does not start. If the \
         file was moved, bring it back; an older copy will not do.{RESET}",
        path.display()
    )]
    Lost {
        /// Where it should be.
        path: PathBuf,
    },
    /// The record is not valid.
    #[error(
        "the stable record {} cannot be used: {why}.\nWithout it this node knows neither its ballots \
         nor the longest lease that it accepted, so it does not start. If another version of the \
         program wrote it, run that one; an older copy of the file will not do.{RESET}",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: paxoslease_wire::StableError,
    },
    /// The file of durable leases is missing, and there was one.
    #[error(
        "the file of durable leases {} is gone, although one was begun.\nThis node voted for leases \
         that are in it, and without it another client could be granted one of them, so it does not \
         start. If the file was moved, bring it back; an older copy will not do.{RESET}",
        path.display()
    )]
    DurableLost {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file of durable leases is not valid.
    #[error(
        "the file of durable leases {} cannot be used: at byte {offset}: {why}.\nThis node voted for \
         leases that are in it, and without it another client could be granted one of them, so it \
         does not start. If another version of the program wrote it, run that one; an older copy of \
         the file will not do.{RESET}",
        path.display()
    )]
    DurableCorrupt {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: usize,
        /// What is wrong with it.
        why: paxoslease_wire::StableError,
    },
    /// The record is another node's.
    #[error(
        "the stable record {} belongs to node {found}, and this is node {node}. Most likely node \
         or data_dir is set wrong: correct that. A node with a new id needs an empty folder; a \
         reset of this one would destroy what node {found} needs to start.{RESET}",
        path.display()
    )]
    OtherNode {
        /// The file.
        path: PathBuf,
        /// The node that starts.
        node: NodeId,
        /// The node it belongs to.
        found: u16,
    },
    /// The file system refused something.
    #[error("cannot {doing} {}: {source}. The node does not start without it", path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl StableError {
    /// Whether the content of the folder is lost or damaged, so that it can only be given up (R6).
    pub(super) const fn ends_with_reset(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::Corrupt { .. }
            | Self::OtherNode { .. }
            | Self::DurableLost { .. }
            | Self::DurableCorrupt { .. } => true,
            Self::Locked { .. } | Self::Io { .. } => false,
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
