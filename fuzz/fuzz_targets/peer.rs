//! See `paxoslease_fuzz::peer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::peer(bytes));
