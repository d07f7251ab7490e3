//! See `paxoslease_fuzz::resp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::resp(bytes));
