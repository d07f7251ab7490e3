//! The real binary running nodes: `dev` and `serve`.

mod access;
mod certs;
mod dev;
mod options;
mod serve;
mod support;
