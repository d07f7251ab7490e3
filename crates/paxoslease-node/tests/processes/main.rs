//! Whole processes on real sockets and real disks: killed, stopped, restarted, cut off, out of
//! space, and the examples as people run them.
//!
//! Linux only: it gives every test a loopback address of its own, and changes the limits of a
//! process that runs. Nobody sleeps here: tests wait for lines, and for a status to become so.

#![cfg(target_os = "linux")]

mod beliefs;
mod cell;
mod crashes;
mod disk;
mod examples;
mod links;
mod relay;
mod restarts;
mod shell;
