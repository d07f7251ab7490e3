//! Whole processes on real sockets and real disks: killed, stopped, restarted, cut off, out of
//! space, and the examples as users run them.
//!
//! Linux only: every test has a loopback address of its own, and tests change the limits of running
//! processes. No test sleeps: tests wait for lines, and for conditions of a status.

#![cfg(target_os = "linux")]

#[path = "../cell/mod.rs"]
mod harness;

mod beliefs;
mod cell;
mod crashes;
mod disk;
mod examples;
mod links;
mod relay;
mod restarts;
mod shell;
