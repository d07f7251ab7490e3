//! See `paxoslease_fuzz::client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::client(bytes));
