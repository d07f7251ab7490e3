//! One command line, shown before it runs and again when it fails, so that it can be repeated.
//!
//! There is no shell. The working directory is the root of the repository. Output goes to the
//! terminal, unless the task asks for it.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio, exit};

use anyhow::{Context, ensure};

/// A program with its arguments and environment, not yet run.
pub(crate) struct Invocation {
    program: &'static str,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
}

/// The rustup proxy `cargo`, which accepts `+nightly`, with these arguments.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Invocation {
    Invocation::new("cargo", args)
}

/// How much time the compiler may take for a release build.
#[derive(Clone, Copy)]
pub(crate) enum Optimised {
    /// As it ships.
    Fully,
    /// For tests of what is installed: without optimisation across crates, in half of the time.
    Quickly,
}

impl Optimised {
    /// Sets the release profile for cargo and for tools that run it.
    pub(crate) fn set(self, invocation: Invocation) -> Invocation {
        match self {
            Self::Fully => invocation,
            Self::Quickly => invocation
                .env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
        }
    }
}

/// The folder that holds the workspace manifest.
pub(crate) fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

impl Invocation {
    pub(crate) fn new<const N: usize>(program: &'static str, args: [&str; N]) -> Self {
        Self { program, args: args.map(str::to_owned).into(), env: Vec::new() }
    }

    /// Reads a command as one would type it: variables, program, arguments. A word or a value in
    /// single quotes may have spaces.
    pub(crate) fn typed(line: &'static str) -> Self {
        let words = |(place, part): (usize, &'static str)| match place % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        };
        let mut words = line.split('\'').enumerate().flat_map(words).peekable();
        let mut env = Vec::new();
        let is_variable = |word: &&str| word.starts_with(char::is_uppercase);
        while let Some((key, value)) = words.next_if(is_variable).and_then(|w| w.split_once('=')) {
            let quoted = || words.next().unwrap_or_default();
            env.push((key, Some(value).filter(|value| !value.is_empty()).unwrap_or_else(quoted)));
        }
        let program = words.next().unwrap_or_default();
        Self { program, args: words.map(str::to_owned).collect(), env }
    }

    pub(crate) fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, key: &'static str, value: &'static str) -> Self {
        self.env.push((key, value));
        self
    }

    pub(crate) fn runs(&self, program: &str) -> bool {
        self.program == program
    }

    fn status(&self) -> anyhow::Result<ExitStatus> {
        eprintln!("$ {self}");
        self.command().status().with_context(|| format!("cannot start `{self}`"))
    }

    /// Shows the command, runs it in this terminal, and fails if it fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let status = self.status()?;
        ensure!(status.success(), "{status}; to repeat it:\n  {self}");
        Ok(())
    }

    /// Like [`Self::run`], but exits with the exit code of the command if it fails.
    pub(crate) fn run_or_exit(&self) -> anyhow::Result<()> {
        let status = self.status()?;
        match status.code().with_context(|| format!("{status}: `{self}`"))? {
            0 => Ok(()),
            code => exit(code),
        }
    }

    /// Runs it silently and returns its standard output.
    pub(crate) fn stdout(&self) -> anyhow::Result<String> {
        let Output { status, stdout, stderr } =
            self.command().output().with_context(|| format!("cannot start `{self}`"))?;
        let said = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "{status}: `{self}`\n{}", said.trim_end());
        String::from_utf8(stdout).with_context(|| format!("the output of `{self}` is not UTF-8"))
    }

    /// Whether it can be started and succeeds. Its output is dropped.
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
        // `cargo run` describes xtask in these. If cargo inherits them, it runs the build script of
        // ring again after every `cargo build` by hand, and compiles all crates above it again.
        let of_xtask =
            |key: &str| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_");
        for (key, _) in env::vars_os() {
            if key.to_str().is_some_and(of_xtask) {
                command.env_remove(key);
            }
        }
        command
    }
}

/// As in a shell.
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
        let shown = "RUSTDOCFLAGS='-D warnings' CI=1 cargo doc --no-deps 'it is'";
        assert_eq!(Invocation::typed(shown).to_string(), shown);
        assert_eq!(cargo(["it's"]).to_string(), r"cargo 'it'\''s'");
    }
}
