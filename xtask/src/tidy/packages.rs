//! What crates.io shows of a crate, and the documents in the Debian package. Whether the crate
//! builds from its package, cargo itself checks.

use crate::tidy::Finding;
use crate::tidy::manifest::Manifest;
use crate::tidy::markdown::links;
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

/// The folder of documents in a Debian package.
const DOCUMENTS: &str = "usr/share/doc/paxoslease/";
/// A Debian package has these as `changelog.gz` and `copyright`.
const ELSEWHERE: [&str; 3] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Every relative link of the README names a file that the Debian package has.
pub(super) fn have_documents(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.manifests();
    let assets: Vec<_> = manifests.iter().flat_map(Manifest::debian_assets).collect();
    let Some(readme) = repository.file("README.md").filter(|_| !assets.is_empty()) else {
        return Vec::new();
    };
    let is_shipped = |path: &str| {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        assets.iter().any(|asset| {
            let place = asset.folder.strip_prefix(DOCUMENTS).map(|place| place.trim_matches('/'));
            let files = asset.source.rsplit('/').next().unwrap_or_default();
            let is_meant = match files.split_once('*') {
                Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
                None => files == name,
            };
            place == Some(folder) && is_meant
        })
    };
    let mut findings = Vec::new();
    for (number, target) in links(&readme.text) {
        let path = target.split('#').next().unwrap_or_default();
        let is_here = !path.is_empty() && !path.contains("://") && !ELSEWHERE.contains(&path);
        if is_here && !is_shipped(path) {
            let message = format!("the Debian package has no `{path}`: add it to its assets");
            findings.push(readme.finding(number, message));
        }
    }
    findings
}
