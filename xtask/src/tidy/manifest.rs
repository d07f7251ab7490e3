//! A `Cargo.toml`, as far as the checks ask about it.
//!
//! Inheritance from the workspace is resolved where it matters (features of a dependency); target
//! specific tables are read like the plain ones.

use toml::{Table, Value};

use crate::tidy::repository::File;

/// A parsed manifest and the file it stands in.
pub(super) struct Manifest<'a> {
    pub(super) file: &'a File,
    table: Table,
    /// The dependencies that the workspace offers.
    offered: Vec<Dependency>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Normal,
    Build,
    Dev,
}

/// One line of a dependency table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dependency {
    /// The package's name, whatever it is called locally.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) features: Vec<String>,
    pub(super) default_features: bool,
    pub(super) is_path: bool,
    pub(super) version: Option<String>,
}

impl<'a> Manifest<'a> {
    pub(super) fn of(file: &'a File, offered: &[Dependency]) -> Option<Self> {
        Some(Self { file, table: file.text.parse().ok()?, offered: offered.to_vec() })
    }

    /// The package's name; `None` for a virtual manifest.
    pub(super) fn package(&self) -> Option<&str> {
        self.table.get("package")?.get("name")?.as_str()
    }

    /// Whether it is a workspace of its own, like `fuzz/`.
    pub(super) fn is_workspace(&self) -> bool {
        self.table.contains_key("workspace")
    }

    /// A string somewhere inside, by its keys.
    pub(super) fn string(&self, keys: &[&str]) -> Option<&str> {
        let (first, rest) = keys.split_first()?;
        rest.iter().try_fold(self.table.get(*first)?, |value, key| value.get(*key))?.as_str()
    }

    /// Whether `[lints] workspace = true`.
    pub(super) fn inherits_lints(&self) -> bool {
        let inherited = self.table.get("lints").and_then(|lints| lints.get("workspace"));
        inherited.and_then(Value::as_bool) == Some(true)
    }

    /// The dependencies that the workspace offers its members.
    pub(super) fn workspace_dependencies(&self) -> Vec<Dependency> {
        let table = self.table.get("workspace").and_then(|table| table.get("dependencies"));
        entries(table).map(|(key, value)| dependency(key, value, Kind::Normal, &[])).collect()
    }

    /// The dependencies of the package, target specific tables included.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let targets = entries(self.table.get("target")).filter_map(|(_, target)| target.as_table());
        let kinds = [
            ("dependencies", Kind::Normal),
            ("build-dependencies", Kind::Build),
            ("dev-dependencies", Kind::Dev),
        ];
        std::iter::once(&self.table)
            .chain(targets)
            .flat_map(|table| kinds.map(|(key, kind)| (table.get(key), kind)))
            .flat_map(|(table, kind)| entries(table).map(move |(key, value)| (key, value, kind)))
            .map(|(key, value, kind)| dependency(key, value, kind, &self.offered))
            .collect()
    }

    /// The features that switching `feature` on switches on, as written: `x`, `dep/x`, `dep?/x`.
    pub(super) fn feature(&self, feature: &str) -> Vec<&str> {
        strings(self.table.get("features").and_then(|features| features.get(feature)))
    }
}

fn entries(table: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    table.and_then(Value::as_table).into_iter().flatten()
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn dependency(key: &str, value: &Value, kind: Kind, offered: &[Dependency]) -> Dependency {
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let own = Dependency {
        name: text("package").unwrap_or(key).to_owned(),
        kind,
        features: strings(value.get("features")).into_iter().map(str::to_owned).collect(),
        default_features: flag("default-features").unwrap_or(true),
        is_path: text("path").is_some(),
        version: value.as_str().or_else(|| text("version")).map(str::to_owned),
    };
    // Keys of `offered` are names here: the workspace renames nothing.
    match offered.iter().find(|base| base.name == key) {
        Some(base) if flag("workspace") == Some(true) => Dependency {
            kind,
            features: base.features.iter().chain(&own.features).cloned().collect(),
            default_features: base.default_features || flag("default-features") == Some(true),
            ..base.clone()
        },
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository::Repository;

    /// The dependencies of the last manifest.
    fn dependencies(files: &[(&str, &str)]) -> Vec<Dependency> {
        let repository = Repository::of(files);
        repository.manifests().last().expect("it parses").dependencies()
    }

    #[test]
    fn an_inherited_dependency_has_the_features_of_both_tables() {
        let root = "[workspace.dependencies]\n\
                    a = { path = \"a\", features = [\"x\"], default-features = false }";
        let member = "[dev-dependencies]\na = { workspace = true, features = [\"y\"] }";
        let expected = Dependency {
            name: "a".into(),
            kind: Kind::Dev,
            features: vec!["x".into(), "y".into()],
            default_features: false,
            is_path: true,
            version: None,
        };
        assert_eq!(dependencies(&[("Cargo.toml", root), ("b/Cargo.toml", member)]), [expected]);
    }

    #[test]
    fn dependencies_of_one_target_and_renamed_ones_are_seen() {
        let text = "[target.'cfg(unix)'.dependencies]\nother = { package = \"tokio\" }";
        let found = dependencies(&[("Cargo.toml", text)]);
        assert_eq!(found.iter().map(|found| &found.name).collect::<Vec<_>>(), ["tokio"]);
    }
}
