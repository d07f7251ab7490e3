//! Why a data folder cannot be used, and what the operator can do (R6).

use std::io;
use std::path::PathBuf;

use paxoslease_core::NodeId;

/// What an operator has to know before a reset.
const RESET: &str = "To start without the record, start this node once with reset_stable_record \
    (command line: --reset-stable-record). It then does not vote for max_lease (if max_lease was \
    lowered lately, give the old one for this start), and its ballots begin at the wall clock. \
    Exclusion then depends on a wall clock that is ahead of every ballot which this node used \
    before. If the clock went back, a ballot can be used twice, a late message about the old one \
    can end the lease of the new one, and two clients can hold the same name; fences can go back \
    too. Reset one node at a time: the others keep the cell working and know its last ballots. \
    While a majority is reset, no lease is granted or renewed for max_lease, and only their wall \
    clocks keep new ballots above the old ones";

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
        "the stable record {} is gone, although one was written. Without it this node knows \
         neither which ballots it used nor how long the leases are that it may have accepted, so \
         it does not start. If the file was moved, bring it back; an older copy will not do. \
         {RESET}",
        path.display()
    )]
    Lost {
        /// Where it should be.
        path: PathBuf,
    },
    /// The record is not valid.
    #[error(
        "the stable record {} cannot be used: {why}. Without it this node knows neither which \
         ballots it used nor how long the leases are that it may have accepted, so it does not \
         start. If another version of the program wrote it, run that one; an older copy of the \
         file will not do. {RESET}",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: paxoslease_wire::StableError,
    },
    /// The record is another node's.
    #[error(
        "the stable record {} belongs to node {found}, and this is node {node}. Most likely node \
         or data_dir is set wrong: correct that. A node with a new id needs an empty folder; a \
         reset of this one would destroy what node {found} needs to start. {RESET}",
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

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
