//! RESP between clients and nodes, by time: its bytes alone, and with a daemon behind them.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use paxoslease_bench::rigs::bytes::{
    BATCH, parse_replies, parse_requests, put_replies, put_requests,
};
use paxoslease_bench::rigs::names::Names;
use paxoslease_bench::rigs::served::Served;

fn main() {
    divan::main();
}

#[divan::bench]
fn put_command(bencher: Bencher<'_, '_>) {
    let (names, mut bytes) = (Names::of(0..BATCH), Vec::new());
    put_requests(&mut bytes, &names);
    counted(bencher, bytes.len()).bench_local(|| {
        bytes.clear();
        put_requests(&mut bytes, &names);
    });
}

#[divan::bench]
fn parse_command(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    put_requests(&mut bytes, &Names::of(0..BATCH));
    counted(bencher, bytes.len()).bench_local(|| parse_requests(&bytes));
}

#[divan::bench]
fn put_reply(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    put_replies(&mut bytes);
    counted(bencher, bytes.len()).bench_local(|| {
        bytes.clear();
        put_replies(&mut bytes);
    });
}

#[divan::bench]
fn parse_reply(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    put_replies(&mut bytes);
    counted(bencher, bytes.len()).bench_local(|| parse_replies(&bytes));
}

/// From socket to socket, a batch at a time.
#[divan::bench]
fn served_pair(bencher: Bencher<'_, '_>) {
    let mut served = Served::start().expect("a daemon");
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        served.acquire().expect("granted");
        served.release().expect("held");
    });
    served.stop();
}

fn counted<'a, 'b>(bencher: Bencher<'a, 'b>, len: usize) -> Bencher<'a, 'b> {
    bencher.counter(ItemsCount::new(BATCH)).counter(BytesCount::new(len))
}
