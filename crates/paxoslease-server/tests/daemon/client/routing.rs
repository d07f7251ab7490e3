//! One name is one lease over RESP, HTTP and the library, each of which chooses the shard of a
//! name.

use paxoslease_client::Client;
use paxoslease_node::block_on;
use serde_json::json;

use super::{TTL, client};
use crate::harness::Cell;

/// A cell of one, and a client of RESP.
struct Ways {
    cell: Cell,
    resp: Client,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Resp,
    Http,
    Library,
}

impl Way {
    const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Library];
}

impl Ways {
    fn start(shards: u16) -> Self {
        let cell = Cell::one_with(|config| config.node.shards = Some(shards));
        let resp = client(&cell, 0);
        Self { cell, resp }
    }

    /// Acquires a name, and leaves it held. Returns the fence, or `None` if it was held before.
    fn take(&self, way: Way, name: &str) -> Option<u64> {
        match way {
            Way::Resp => {
                let lease = self.resp.try_acquire(name, TTL).blocking().ok()?;
                Some(std::mem::ManuallyDrop::new(lease).fence())
            }
            Way::Library => {
                let lease = self.cell[0].node().try_acquire(name, TTL).blocking().ok()?;
                Some(std::mem::ManuallyDrop::new(lease).fence())
            }
            Way::Http => {
                let path = format!("/v1/leases/{name}/acquire");
                let reply = self.cell[0].post(&path, &json!({"ttl": "60s"}));
                (reply.status == 200).then(|| reply.field("fence").parse().expect("a number"))
            }
        }
    }

    /// The fence of the lease, if a name is held.
    fn look(&self, way: Way, name: &str) -> Option<u64> {
        match way {
            Way::Resp => self.resp.get_blocking(name).expect("answered").map(|seen| seen.fence),
            Way::Library => block_on(self.cell[0].node().inspect(name))
                .expect("answered")
                .map(|seen| seen.fence),
            Way::Http => {
                let reply = self.cell[0].get(&format!("/v1/leases/{name}"));
                reply.json()["fence"].as_str().map(|fence| fence.parse().expect("a number"))
            }
        }
    }
}

#[test]
fn every_way_to_a_name_leads_to_the_same_shard() {
    let ways = Ways::start(4);
    for (number, taker) in (0..48).zip(Way::ALL.into_iter().cycle()) {
        let name = format!("name-{number}");
        let fence = ways.take(taker, &name).expect("it is free");
        for other in Way::ALL {
            assert_eq!(ways.look(other, &name), Some(fence), "{taker:?} took {name}: {other:?}");
            assert_eq!(ways.take(other, &name), None, "{taker:?} took {name}: {other:?}");
        }
        // Any client that knows the fence may release it, over any way (P7).
        let fence = json!({"fence": fence.to_string()});
        let released = ways.cell[0].post(&format!("/v1/leases/{name}/release"), &fence);
        assert_eq!(released.status, 200, "{taker:?} took {name}: {released:?}");
        assert_eq!(ways.look(Way::Resp, &name), None);
    }
}
