//! The tools a task needs beyond the compiler: looked for first, installed when missing.
//!
//! Versions are not pinned: these tools judge the code, they do not become part of it.

use anyhow::{Context, ensure};

use crate::invocation::{Invocation, cargo};

/// Where libraries of other languages go; the tests that use them look there.
const PYTHON_FOLDER: &str = "target/clients/python";
const NODE_FOLDER: &str = "target/clients/node";

/// It changes the system, so it is for root.
const APT: &str = "apt-get";
/// Where Debian puts it.
const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";

/// Something a fresh machine may lack.
#[derive(Clone, Copy)]
pub(crate) enum Tool {
    Clippy,
    Rustfmt,
    Nextest,
    Deny,
    Fuzz,
    Nightly,
    Valgrind,
    /// What cuts and joins networks.
    Nftables,
    Iproute,
    /// What the service is compared with.
    Redis,
    Etcd,
    ZooKeeper,
    /// The clients that the service is tested with, and what installs them.
    RedisCli,
    Pip,
    RedisPy,
    Npm,
    Ioredis,
}

impl Tool {
    /// Makes sure the tool can be used.
    pub(crate) fn ensure(self) -> anyhow::Result<()> {
        if self.probe().succeeds() {
            return Ok(());
        }
        let remedy = self.remedy();
        let missing = || format!("a tool is missing: `{}` fails", self.probe());
        ensure!(!remedy.runs(APT) || is_root(), "{}; as root:\n  {remedy}", missing());
        remedy.run().with_context(missing)
    }

    fn probe(self) -> Invocation {
        match self {
            Self::Clippy => cargo(["clippy", "--version"]),
            Self::Rustfmt => cargo(["fmt", "--version"]),
            Self::Nextest => cargo(["nextest", "--version"]),
            Self::Deny => cargo(["deny", "--version"]),
            Self::Fuzz => cargo(["fuzz", "--version"]),
            Self::Nightly => cargo(["+nightly", "--version"]),
            Self::Valgrind => Invocation::new("valgrind", ["--version"]),
            Self::Nftables => Invocation::new("nft", ["--version"]),
            Self::Iproute => Invocation::new("ip", ["-Version"]),
            Self::Redis => Invocation::new("redis-server", ["--version"]),
            Self::Etcd => Invocation::new("etcd", ["--version"]),
            // Which of the two is missing does not matter: the package brings both.
            Self::ZooKeeper => {
                Invocation::new("java", ["-cp", ZOOKEEPER_JAR, "org.apache.zookeeper.Version"])
            }
            Self::RedisCli => Invocation::new("redis-cli", ["--version"]),
            Self::Pip => Invocation::new("python3", ["-m", "pip", "--version"]),
            Self::RedisPy => {
                Invocation::new("python3", ["-c", "import redis"]).env("PYTHONPATH", PYTHON_FOLDER)
            }
            Self::Npm => Invocation::new("npm", ["--version"]),
            Self::Ioredis => Invocation::new("npm", ["--prefix", NODE_FOLDER, "ls", "ioredis"]),
        }
    }

    fn remedy(self) -> Invocation {
        match self {
            Self::Clippy => Invocation::new("rustup", ["component", "add", "clippy"]),
            Self::Rustfmt => Invocation::new("rustup", ["component", "add", "rustfmt"]),
            Self::Nextest => cargo(["install", "cargo-nextest", "--locked"]),
            Self::Deny => cargo(["install", "cargo-deny", "--locked"]),
            Self::Fuzz => cargo(["install", "cargo-fuzz", "--locked"]),
            Self::Valgrind => apt("valgrind"),
            Self::Nftables => apt("nftables"),
            Self::Iproute => apt("iproute2"),
            Self::Redis => apt("redis-server"),
            Self::Etcd => apt("etcd-server"),
            // Its sibling `zookeeperd` would add nothing but a service that starts by itself.
            Self::ZooKeeper => apt("zookeeper"),
            Self::RedisCli => apt("redis-tools"),
            Self::Pip => apt("python3-pip"),
            Self::RedisPy => Invocation::new(
                "python3",
                ["-m", "pip", "install", "--target", PYTHON_FOLDER, "redis"],
            ),
            Self::Npm => apt("npm"),
            Self::Ioredis => {
                Invocation::new("npm", ["--prefix", NODE_FOLDER, "install", "ioredis"])
            }
            Self::Nightly => Invocation::new(
                "rustup",
                ["toolchain", "install", "nightly", "--profile", "minimal"],
            ),
        }
    }
}

fn apt(package: &str) -> Invocation {
    Invocation::new(APT, ["install", "--yes", "--no-install-recommends", package])
}

/// Where nobody can tell, the remedy itself will.
pub(crate) fn is_root() -> bool {
    Invocation::new("id", ["-u"]).stdout().map_or(true, |id| id.trim() == "0")
}
