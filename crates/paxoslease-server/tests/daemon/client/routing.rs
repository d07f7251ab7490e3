//! One name is one lease over RESP, HTTP and the library, each of which chooses the shard of a
//! name.

use std::mem::ManuallyDrop;

use paxoslease_node::block_on;
use serde_json::json;

use super::{TTL, client};
use crate::harness::Cell;

/// What a way to a name answers: the fence of a lease, if there is one.
type Way<'a> = (&'static str, &'a dyn Fn(&str) -> Option<u64>);

#[test]
fn every_way_to_a_name_leads_to_the_same_shard() {
    let cell = Cell::one_with(|config| config.node.shards = 4);
    let (resp, daemon) = (client(&cell, 0), &cell[0]);
    // Each acquires a name and leaves it held, unless it was held before.
    let takers: [Way<'_>; 3] = [
        ("RESP", &|name| {
            let lease = resp.try_acquire(name, TTL).blocking().ok()?;
            Some(ManuallyDrop::new(lease).fence())
        }),
        ("HTTP", &|name| {
            let reply = daemon.post(&format!("/v1/leases/{name}/acquire"), &json!({"ttl": "60s"}));
            (reply.status == 200).then(|| reply.field("fence").parse().expect("a number"))
        }),
        ("library", &|name| {
            let lease = daemon.node().try_acquire(name, TTL).blocking().ok()?;
            Some(ManuallyDrop::new(lease).fence())
        }),
    ];
    let lookers: [Way<'_>; 3] = [
        ("RESP", &|name| Some(resp.get_blocking(name).expect("answered")?.fence)),
        ("HTTP", &|name| {
            let reply = daemon.get(&format!("/v1/leases/{name}")).json();
            reply["fence"].as_str().map(|fence| fence.parse().expect("a number"))
        }),
        ("library", &|name| Some(block_on(daemon.node().inspect(name)).expect("answered")?.fence)),
    ];
    for (number, (taker, take)) in (0..48).zip(takers.iter().cycle()) {
        let name = format!("name-{number}");
        let fence = take(&name).expect("it is free");
        for ((other, take), (_, look)) in takers.iter().zip(&lookers) {
            assert_eq!(look(&name), Some(fence), "{taker} took {name}: {other}");
            assert_eq!(take(&name), None, "{taker} took {name}: {other}");
        }
        // Any client that knows the fence may release it, over any way (P7).
        let fence = json!({"fence": fence.to_string()});
        let released = daemon.post(&format!("/v1/leases/{name}/release"), &fence);
        assert_eq!(released.status, 200, "{taker} took {name}: {released:?}");
        let (_, look_by_resp) = &lookers[0];
        assert_eq!(look_by_resp(&name), None);
    }
}
