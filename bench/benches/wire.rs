//! Frames between nodes, by time.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use paxoslease_bench::rigs::bytes::{BATCH, Messages};

fn main() {
    divan::main();
}

#[divan::bench]
fn encode(bencher: Bencher<'_, '_>) {
    let mut messages = Messages::new();
    let len = messages.encode().len();
    counted(bencher, len).bench_local(|| messages.encode().len());
}

#[divan::bench]
fn decode(bencher: Bencher<'_, '_>) {
    let mut messages = Messages::new();
    let len = messages.encode().len();
    counted(bencher, len).bench_local(|| messages.decode());
}

fn counted<'a, 'b>(bencher: Bencher<'a, 'b>, len: usize) -> Bencher<'a, 'b> {
    bencher.counter(ItemsCount::new(BATCH)).counter(BytesCount::new(len))
}
