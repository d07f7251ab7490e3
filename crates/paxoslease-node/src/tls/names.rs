//! The DNS names in the certificates of a cell's nodes.
//!
//! The name of the cell is a part of them, so that one authority can serve several cells. So is the
//! role: the certificate of a proposer is not that of a member with the same id. The handshake has
//! checked the signatures, so this module does not.

use std::fmt::Display;
use std::sync::Arc;

use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use super::TlsError;

/// The longest label of a DNS name.
const LABEL_LEN_MAX: usize = 63;

/// The DNS name that the certificate of a node with this role must be valid for.
pub(crate) fn dns_name(cell: &str, node: impl Display, role: Role) -> String {
    let kind = match role {
        Role::Member => "node",
        Role::Proposer => "proposer",
    };
    format!("{kind}-{node}.{cell}.paxoslease")
}

/// The names of the nodes of one cell, which is called by a DNS label.
#[derive(Clone, Debug)]
pub(super) struct NodeNames {
    cell: Arc<str>,
}

impl NodeNames {
    /// Upper case is refused, because DNS names of two cells that differ by case alone are equal.
    pub(super) fn new(cell: &str) -> Result<Self, TlsError> {
        let is_sound =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = (1..=LABEL_LEN_MAX).contains(&cell.len()) && cell.bytes().all(is_sound);
        if is_label && !cell.starts_with('-') && !cell.ends_with('-') {
            return Ok(Self { cell: cell.into() });
        }
        Err(TlsError::CellName(cell.to_owned()))
    }

    pub(super) fn text(&self, node: NodeId, role: Role) -> String {
        dns_name(&self.cell, node, role)
    }

    pub(super) fn of(&self, node: NodeId, role: Role) -> ServerName<'static> {
        ServerName::try_from(self.text(node, role)).expect("labels of letters, digits and hyphens")
    }

    /// Whether a certificate is valid for this node in this role, and not for every node.
    pub(super) fn is_of(&self, certificate: &CertificateDer<'_>, node: NodeId, role: Role) -> bool {
        ParsedCertificate::try_from(certificate).is_ok_and(|parsed| {
            verify_server_name(&parsed, &self.of(node, role)).is_ok() && !self.is_of_all(&parsed)
        })
    }

    /// Whether a certificate has a wildcard for the nodes of the cell: no node has the id 0.
    pub(super) fn is_of_all(&self, parsed: &ParsedCertificate<'_>) -> bool {
        let no_node = dns_name(&self.cell, 0, Role::Member);
        let no_node = ServerName::try_from(no_node).expect("as for any other id");
        verify_server_name(parsed, &no_node).is_ok()
    }
}
