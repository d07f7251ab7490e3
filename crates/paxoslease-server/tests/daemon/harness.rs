//! What the tests share: cells of daemons, clients of both protocols, transcripts.

mod cell;
mod http;
mod resp;
mod transcript;
mod until;
mod wire;

pub(crate) use cell::{Cell, Daemon, entry, tls_files, tokens};
pub(crate) use http::{Raw, Reply};
pub(crate) use resp::{Client, fence};
pub(crate) use transcript::{line_of, new_path, play};
pub(crate) use until::{PATIENCE, until};
pub(crate) use wire::Wire;
