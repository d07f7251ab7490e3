//! See `paxoslease_fuzz::snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::snapshot(bytes));
