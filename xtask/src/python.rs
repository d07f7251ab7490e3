//! The Python package (`python/`): its wheel and source distribution, its tests against real cells,
//! and the comparison with redis-py.

use std::fs;

use anyhow::Context;

use crate::install;
use crate::invocation::{Invocation, Optimised, cargo, repository_root};

const PYTHON: &str = "target/python/bin/python";
const MATURIN: &str = "target/python/bin/maturin";

/// The wheel and the source distribution under test.
const DIST: &str = "target/python/dist";

/// Writes the wheel and the source distribution to a folder.
pub(crate) fn build(folder: &str, optimised: Optimised) -> anyhow::Result<()> {
    install::ensure("venv")?;
    Invocation::new("python3", ["-m", "venv", "target/python"]).run()?;
    let requirements = ["--requirement", "python/tests/requirements.txt"];
    Invocation::new(PYTHON, ["-m", "pip", "install", "--quiet"]).args(requirements).run()?;
    // Not with zig, which would make a wheel for older systems: its unwinder differs from that of
    // libgcc, and threads crashed when the interpreter ended.
    let crate_and_folder = ["--manifest-path", "python/Cargo.toml", "--out", folder];
    let maturin = Invocation::new(MATURIN, ["build", "--release", "--locked"]);
    optimised.set(maturin.args(crate_and_folder)).run()?;
    Invocation::new(MATURIN, ["sdist"]).args(crate_and_folder).run()
}

/// Installs the wheel under test.
fn install_wheel() -> anyhow::Result<()> {
    let names = fs::read_dir(repository_root().join(DIST))?;
    let names = names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<anyhow::Result<_>>()?;
    let start = format!("paxoslease-{}-", env!("CARGO_PKG_VERSION"));
    let is_wheel = |name: &&String| name.starts_with(&start) && name.ends_with(".whl");
    let wheel = names.iter().find(is_wheel).context("maturin has written no wheel")?;
    let how = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    Invocation::new(PYTHON, how).args([format!("{DIST}/{wheel}")]).run()
}

/// Builds and tests the package.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    install::ensure("redis")?;
    let optimised = Optimised::Quickly;
    optimised.set(cargo(["build", "--release", "--locked", "-p", "paxoslease-cli"])).run()?;
    build(DIST, optimised)?;
    install_wheel()?;
    let config = ["--config-file", "python/pyproject.toml"];
    Invocation::new(PYTHON, ["-m", "mypy"]).args(config).args(["python/paxoslease"]).run()?;
    Invocation::new(PYTHON, ["-m", "mypy.stubtest", "paxoslease._native"]).run()?;
    let pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"];
    Invocation::new(PYTHON, pytest).args(args).run()
}

/// The same load on a cell and on Redis. The binary of the nodes is built already.
pub(crate) fn bench(args: Vec<String>) -> anyhow::Result<()> {
    install::ensure("redis")?;
    build(DIST, Optimised::Fully)?;
    install_wheel()?;
    Invocation::new(PYTHON, ["python/tests/bench.py"]).args(args).run()
}
