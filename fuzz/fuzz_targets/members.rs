//! See `paxoslease_fuzz::members`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::members(bytes));
