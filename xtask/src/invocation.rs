//! One command line: shown before it runs, and again as what to repeat when it fails.
//!
//! There is no shell in between, no capture of output but where a task asks for it, and no
//! working directory other than the repository's root.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// A program with its arguments and environment, not yet run.
pub(crate) struct Invocation {
    program: &'static str,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
}

/// `cargo` with these arguments. The rustup proxy is meant, so that `+nightly` works.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Invocation {
    Invocation::new("cargo", args)
}

/// The folder that holds the workspace manifest.
pub(crate) fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

impl Invocation {
    pub(crate) fn new<const N: usize>(program: &'static str, args: [&str; N]) -> Self {
        Self { program, args: args.map(str::to_owned).into(), env: Vec::new() }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn env(mut self, key: &'static str, value: &'static str) -> Self {
        self.env.push((key, value));
        self
    }

    /// Whether it is this program that it runs.
    pub(crate) fn runs(&self, program: &str) -> bool {
        self.program == program
    }

    /// Shows the command, runs it with our own terminal, and fails when it does.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        eprintln!("$ {self}");
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("{status}; to repeat it:\n  {self}");
        }
        Ok(())
    }

    /// Shows the command, runs it with our own terminal, and hands over what it ended with.
    pub(crate) fn code(&self) -> anyhow::Result<i32> {
        eprintln!("$ {self}");
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        status.code().with_context(|| format!("{status}: `{self}`"))
    }

    /// Runs it silently and hands over what it wrote to stdout.
    pub(crate) fn stdout(&self) -> anyhow::Result<String> {
        let Output { status, stdout, stderr } =
            self.command().output().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("{status}: `{self}`\n{}", String::from_utf8_lossy(&stderr).trim_end());
        }
        String::from_utf8(stdout).with_context(|| format!("`{self}` wrote no UTF-8"))
    }

    /// Whether it can be started and succeeds; what it says does not matter.
    pub(crate) fn succeeds(&self) -> bool {
        self.command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.args.iter().map(OsStr::new)).envs(self.env.iter().copied());
        command.current_dir(repository_root()).stdin(Stdio::null());
        command
    }
}

/// As one would type it into a shell.
impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.env {
            write!(f, "{key}={} ", quoted(value))?;
        }
        f.write_str(self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let command = cargo(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").arg("it's");
        assert_eq!(
            command.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'"
        );
    }

    #[test]
    fn a_failing_command_says_how_to_repeat_it() {
        let error = cargo(["no-such-subcommand"]).run().expect_err("cargo refuses it");
        assert!(error.to_string().contains("to repeat it:\n  cargo no-such-subcommand"), "{error}");
    }

    #[test]
    fn the_root_is_where_the_workspace_manifest_is() {
        assert!(repository_root().join("xtask/Cargo.toml").is_file());
    }
}
