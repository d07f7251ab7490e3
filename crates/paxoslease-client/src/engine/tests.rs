//! The engine between hand-driven clock and scripted server: what it says, what it believes.

mod beliefs;
mod leases;
mod moving;
mod quorum;
mod scene;
