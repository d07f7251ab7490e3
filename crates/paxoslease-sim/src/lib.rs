//! A deterministic world around the real core and codec.

pub mod diagram;
pub mod trace;
