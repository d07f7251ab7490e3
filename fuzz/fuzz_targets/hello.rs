//! See `paxoslease_fuzz::hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::hello(bytes));
