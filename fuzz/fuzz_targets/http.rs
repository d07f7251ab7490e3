//! See `paxoslease_fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::http(bytes));
