//! Shared by all benchmarks: services to compare, an HTTP client, pages and plots.
#![expect(missing_docs, reason = "not shipped: a comment that repeats a name is left out")]

pub mod cores;
pub mod http;
pub mod page;
pub mod peers;
pub mod plot;
