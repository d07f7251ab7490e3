//! Bytes per lease in an acceptor.

use paxoslease_bench::page::Page;
use paxoslease_core::{
    Ballot, Cell, Config, Drift, Holder, Instant, Message, Name, NodeId, Request, Shard, Start, Ttl,
};

const LEASES: [u32; 3] = [10_000, 100_000, 1_000_000];
const HOLDER: &str = "holder-of-leases";
const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// The heap that an acceptor with this many leases reports.
fn bytes(leases: u32) -> usize {
    let [node, peer, third] = [1, 2, 3].map(|id| NodeId::new(id).expect("a node id"));
    let ttl = Ttl::from_millis(600_000).expect("not zero");
    let cell = Cell::new(&[node, peer, third], ttl, Drift::NONE).expect("a cell");
    let start = Start::NewCell { counter: 0, disk: false };
    let mut shard = Shard::start(Config::new(node, cell, 7), NOW, start);
    let holder = Holder::new(HOLDER).expect("in bounds");
    for number in 0..leases {
        let text = format!("lease/{number:010}");
        let name = Name::new(&text).expect("in bounds");
        let ballot = Ballot::new(u64::from(number) + 1, peer);
        let request = Request::Propose { name, ballot, ttl, holder };
        let handled = shard.handle_message(NOW, peer, Message::Request(request));
        assert_eq!(handled, Ok(()));
        while shard.poll_transmit().is_some() {}
    }
    assert_eq!(shard.entries(), leases as usize, "all of them are kept");
    shard.acceptor_bytes()
}

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    page.set("holder_len", HOLDER.len());
    let rows = LEASES.map(|leases| {
        let bytes = bytes(leases);
        let each = bytes as f64 / f64::from(leases);
        let per_gigabyte = 1e9 / each / 1e6;
        vec![
            leases.to_string(),
            bytes.to_string(),
            format!("{each:.1}"),
            format!("{per_gigabyte:.1} million"),
        ]
    });
    page.table("memory", &["leases", "bytes", "bytes per lease", "leases per gigabyte"], rows);
    Ok(())
}
