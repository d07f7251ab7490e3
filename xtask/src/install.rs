//! The tools a task needs beyond the compiler: looked for first, installed when missing.
//!
//! Versions are not pinned: these tools judge the code, they do not become part of it.

use anyhow::Context;

use crate::invocation::{Invocation, cargo};

/// Something a fresh machine may lack.
#[derive(Clone, Copy)]
pub(crate) enum Tool {
    Clippy,
    Rustfmt,
    Nextest,
    Deny,
    Fuzz,
    Nightly,
    /// What the service is compared with.
    Redis,
}

impl Tool {
    /// Makes sure the tool can be used.
    pub(crate) fn ensure(self) -> anyhow::Result<()> {
        if self.probe().succeeds() {
            return Ok(());
        }
        let remedy = self.remedy();
        remedy.run().with_context(|| format!("a tool is missing: `{}` fails", self.probe()))
    }

    fn probe(self) -> Invocation {
        match self {
            Self::Clippy => cargo(["clippy", "--version"]),
            Self::Rustfmt => cargo(["fmt", "--version"]),
            Self::Nextest => cargo(["nextest", "--version"]),
            Self::Deny => cargo(["deny", "--version"]),
            Self::Fuzz => cargo(["fuzz", "--version"]),
            Self::Nightly => cargo(["+nightly", "--version"]),
            Self::Redis => Invocation::new("redis-server", ["--version"]),
        }
    }

    fn remedy(self) -> Invocation {
        match self {
            Self::Clippy => Invocation::new("rustup", ["component", "add", "clippy"]),
            Self::Rustfmt => Invocation::new("rustup", ["component", "add", "rustfmt"]),
            Self::Nextest => cargo(["install", "cargo-nextest", "--locked"]),
            Self::Deny => cargo(["install", "cargo-deny", "--locked"]),
            Self::Fuzz => cargo(["install", "cargo-fuzz", "--locked"]),
            Self::Redis => Invocation::new("apt-get", ["install", "--yes", "redis-server"]),
            Self::Nightly => Invocation::new(
                "rustup",
                ["toolchain", "install", "nightly", "--profile", "minimal"],
            ),
        }
    }
}
