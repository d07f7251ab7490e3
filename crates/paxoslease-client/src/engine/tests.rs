//! The engine with a manual clock and a scripted server: what it sends, what it believes.

mod beliefs;
mod leases;
mod scene;
mod support;
