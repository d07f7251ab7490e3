//! A `Cargo.toml`, as far as the checks ask about it. Target specific tables are read like the
//! plain ones.

use toml::{Table, Value};

use crate::tidy::repository::File;

/// A parsed manifest and the file it stands in.
pub(super) struct Manifest<'a> {
    pub(super) file: &'a File,
    table: Table,
    /// The dependencies that the workspace offers.
    offered: Vec<Dependency>,
}

/// One line of a dependency table.
#[derive(Clone)]
pub(super) struct Dependency {
    /// The package's name, whatever it is called locally.
    pub(super) name: String,
    pub(super) is_path: bool,
    pub(super) version: Option<String>,
}

/// A line of the assets of the Debian package.
pub(super) struct Asset<'a> {
    pub(super) source: &'a str,
    pub(super) folder: &'a str,
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

    /// Whether the package has this field, its own or the workspace's.
    pub(super) fn has_field(&self, field: &str) -> bool {
        self.table.get("package").and_then(|package| package.get(field)).is_some()
    }

    /// The files of the Debian package: where they are, seen from the manifest, and their folder.
    pub(super) fn debian_assets(&self) -> Vec<Asset<'_>> {
        let deb = self.table.get("package").and_then(|package| package.get("metadata")?.get("deb"));
        let assets = deb.and_then(|deb| deb.get("assets")?.as_array());
        let lines = assets.into_iter().flatten();
        let words = lines.filter_map(|line| Some((line.get(0)?.as_str()?, line.get(1)?.as_str()?)));
        words.map(|(source, folder)| Asset { source, folder }).collect()
    }

    /// Whether the manifest is of a package that crates.io may have.
    pub(super) fn is_published(&self) -> bool {
        let package = self.table.get("package");
        package
            .is_some_and(|package| package.get("publish").and_then(Value::as_bool) != Some(false))
    }

    /// Whether `[lints] workspace = true`.
    pub(super) fn inherits_lints(&self) -> bool {
        let inherited = self.table.get("lints").and_then(|lints| lints.get("workspace"));
        inherited.and_then(Value::as_bool) == Some(true)
    }

    /// The dependencies that the workspace offers its members.
    pub(super) fn workspace_dependencies(&self) -> Vec<Dependency> {
        let table = self.table.get("workspace").and_then(|table| table.get("dependencies"));
        entries(table).map(|(key, value)| dependency(key, value)).collect()
    }

    /// The dependencies of the package, target specific tables included. One that the workspace
    /// offers is as the workspace has it, which renames nothing.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let targets = entries(self.table.get("target")).filter_map(|(_, target)| target.as_table());
        let kinds = ["dependencies", "build-dependencies", "dev-dependencies"];
        std::iter::once(&self.table)
            .chain(targets)
            .flat_map(|table| kinds.map(|kind| table.get(kind)))
            .flat_map(entries)
            .map(|(key, value)| match self.offered.iter().find(|offered| offered.name == *key) {
                Some(offered) if value.get("workspace").is_some() => offered.clone(),
                _ => dependency(key, value),
            })
            .collect()
    }
}

fn entries(table: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    table.and_then(Value::as_table).into_iter().flatten()
}

fn dependency(key: &str, value: &Value) -> Dependency {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    Dependency {
        name: text("package").unwrap_or(key).to_owned(),
        is_path: text("path").is_some(),
        version: value.as_str().or_else(|| text("version")).map(str::to_owned),
    }
}
