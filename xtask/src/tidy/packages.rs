//! What crates.io shows of a crate. Whether the crate builds from its package, cargo itself checks.

use crate::tidy::Finding;
use crate::tidy::repository::Repository;

const FIELDS: [&str; 7] =
    ["description", "license", "rust-version", "documentation", "readme", "keywords", "categories"];
/// Links to the files of the root: a package has only files of its folder.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Every crate without `publish = false` has these fields, its own or the workspace's, and both
/// licences.
pub(super) fn are_complete(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in repository.manifests().iter().filter(|manifest| manifest.is_published()) {
        let fields = FIELDS.iter().filter(|field| !manifest.has_field(field));
        let folder = manifest.file.path.trim_end_matches("Cargo.toml");
        let files = LICENCES.iter().filter(|file| !repository.has(&format!("{folder}{file}")));
        let lacking = fields.chain(files).map(|name| format!("a published crate needs `{name}`"));
        findings.extend(lacking.map(|message| manifest.file.finding_at("[package]", message)));
    }
    findings
}
