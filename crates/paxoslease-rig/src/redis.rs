//! Redis servers, to compare with.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::Process;

/// Starts a Redis server on loopback, without persistence. Its log is in the folder.
pub fn redis_server(port: u16, folder: &Path) -> Result<Process> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(folder);
    Process::spawn(command, &folder.join("log"))
        .context("is redis-server installed? On Debian: apt-get install redis-server")
}
