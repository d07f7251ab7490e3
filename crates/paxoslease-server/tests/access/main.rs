//! Who gets in, and how far: TLS, tokens, and both of them changed while a daemon runs.

mod quota;
mod reload;
mod resp;
mod support;
mod tls;
mod web;
