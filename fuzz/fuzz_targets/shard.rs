//! See `paxoslease_fuzz::shard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paxoslease_fuzz::shard(bytes));
