//! The tools that a task needs beside the compiler. A missing tool is installed.
//!
//! Versions are not pinned: these tools check the code and are not part of it.

use anyhow::{Context, ensure};

use crate::invocation::{Invocation, cargo};

/// The folders of libraries of other languages, which the tests use.
const PYTHON_FOLDER: &str = "target/clients/python";
const NODE_FOLDER: &str = "target/clients/node";

/// Needs root.
const APT: &str = "apt-get";
/// The path of the Debian package.
const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";

#[derive(Clone, Copy)]
pub(crate) enum Tool {
    Clippy,
    Rustfmt,
    Nextest,
    Deny,
    Fuzz,
    Nightly,
    Valgrind,
    /// For the networks of the chaos harness.
    Nftables,
    Iproute,
    /// Services to compare with.
    Redis,
    Etcd,
    ZooKeeper,
    /// Clients of other languages, and their installers.
    RedisCli,
    Pip,
    RedisPy,
    Npm,
    Ioredis,
    /// Stores and services that the documents have recipes for.
    Postgres,
    MariaDb,
    MariaDbClient,
    Sqlite,
    EtcdClient,
    S3,
    Curl,
    Systemd,
    KubernetesSchemas,
    /// Checks the OpenAPI document.
    Redocly,
}

impl Tool {
    /// Installs the tool if it is missing.
    pub(crate) fn ensure(self) -> anyhow::Result<()> {
        let [probe, remedy] = self.commands();
        if probe.succeeds() {
            return Ok(());
        }
        let missing = || format!("a tool is missing: `{probe}` fails");
        ensure!(!remedy.runs(APT) || is_root(), "{}; as root:\n  {remedy}", missing());
        remedy.run().with_context(missing)
    }

    /// The command that succeeds if the tool is there, and the one that installs it.
    fn commands(self) -> [Invocation; 2] {
        let component = |name| Invocation::new("rustup", ["component", "add", name]);
        let install = |name| cargo(["install", name, "--locked"]);
        let version = |program| Invocation::new(program, ["--version"]);
        match self {
            Self::Clippy => [cargo(["clippy", "--version"]), component("clippy")],
            Self::Rustfmt => [cargo(["fmt", "--version"]), component("rustfmt")],
            Self::Nextest => [cargo(["nextest", "--version"]), install("cargo-nextest")],
            Self::Deny => [cargo(["deny", "--version"]), install("cargo-deny")],
            Self::Fuzz => [cargo(["fuzz", "--version"]), install("cargo-fuzz")],
            Self::Nightly => {
                let install = ["toolchain", "install", "nightly", "--profile", "minimal"];
                [cargo(["+nightly", "--version"]), Invocation::new("rustup", install)]
            }
            Self::Valgrind => [version("valgrind"), apt("valgrind")],
            Self::Nftables => [version("nft"), apt("nftables")],
            Self::Iproute => [Invocation::new("ip", ["-Version"]), apt("iproute2")],
            Self::Redis => [version("redis-server"), apt("redis-server")],
            Self::Etcd => [version("etcd"), apt("etcd-server")],
            // The package has the server and Java. `zookeeperd` would add a running service.
            Self::ZooKeeper => {
                let version = ["-cp", ZOOKEEPER_JAR, "org.apache.zookeeper.Version"];
                [Invocation::new("java", version), apt("zookeeper")]
            }
            Self::RedisCli => [version("redis-cli"), apt("redis-tools")],
            Self::Pip => {
                [Invocation::new("python3", ["-m", "pip", "--version"]), apt("python3-pip")]
            }
            Self::RedisPy => python("redis", &["redis"]),
            Self::Npm => [version("npm"), apt("npm")],
            Self::Ioredis => npm_package("ioredis"),
            // Version 3 requires a newer Node.js than Debian's.
            Self::Redocly => npm_package("@redocly/cli@2"),
            // Debian keeps the server out of the path.
            Self::Postgres => {
                let version = "/usr/lib/postgresql/*/bin/postgres --version";
                [Invocation::new("sh", ["-c", version]), apt("postgresql")]
            }
            // These packages start no service.
            Self::MariaDb => [version("mariadbd"), apt("mariadb-server-core")],
            Self::MariaDbClient => [version("mariadb"), apt("mariadb-client-core")],
            Self::Sqlite => [version("sqlite3"), apt("sqlite3")],
            Self::EtcdClient => [Invocation::new("etcdctl", ["version"]), apt("etcd-client")],
            Self::S3 => python("moto.server", &["moto[s3]", "flask", "flask-cors"]),
            Self::Curl => [version("curl"), apt("curl")],
            Self::Systemd => [version("systemd-analyze"), apt("systemd")],
            Self::KubernetesSchemas => python("kubernetes_validate", &["kubernetes-validate"]),
        }
    }
}

/// How to find a module of Python, and how to install it.
fn python(module: &str, packages: &[&str]) -> [Invocation; 2] {
    let import = Invocation::new("python3", ["-c", &format!("import {module}")]);
    let install = Invocation::new("python3", ["-m", "pip", "install", "--target", PYTHON_FOLDER]);
    [import.env("PYTHONPATH", PYTHON_FOLDER), install.args(packages.iter().copied())]
}

/// The checker of OpenAPI documents. It prints no notices, and reports nothing to its authors.
pub(crate) fn redocly<const N: usize>(arguments: [&str; N]) -> Invocation {
    Invocation::new("target/clients/node/node_modules/.bin/redocly", arguments)
        .env("REDOCLY_TELEMETRY", "off")
        .env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")
}

fn npm_package(package: &str) -> [Invocation; 2] {
    let npm = |command| ["--prefix", NODE_FOLDER, command, package];
    ["ls", "install"].map(|command| Invocation::new("npm", npm(command)))
}

fn apt(package: &str) -> Invocation {
    Invocation::new(APT, ["install", "--yes", "--no-install-recommends", package])
}

/// True if it is unknown: then the installation itself fails.
pub(crate) fn is_root() -> bool {
    Invocation::new("id", ["-u"]).stdout().map_or(true, |id| id.trim() == "0")
}
