//! See `paxoslease_fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::session(bytes));
