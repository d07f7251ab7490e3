//! Clients that mean harm, beside one that does not: what they do is refused and counted, what is
//! kept for them is bounded, and the other is served as ever.
//!
//! How fast it is served meanwhile is measured elsewhere (`cargo xtask bench hostile`).

mod clients;
mod requests;
mod support;
