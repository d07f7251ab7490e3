//! See `paxoslease_fuzz::cell`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::cell(bytes));
