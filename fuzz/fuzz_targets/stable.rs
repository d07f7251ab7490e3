//! See `paxoslease_fuzz::stable`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::stable(bytes));
