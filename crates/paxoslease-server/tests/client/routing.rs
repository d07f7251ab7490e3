//! One name is one lease, whichever way it is asked for: RESP, HTTP and the library each choose the
//! shard of a name by themselves.

use std::net::TcpListener;

use paxoslease_client::Client;
use paxoslease_node::block_on;
use paxoslease_server::{Config, Server};
use serde_json::{Value, json};
use ureq::Agent;

use crate::{PATIENCE, TTL};

/// A cell of one, and a client of each kind.
struct Ways {
    server: Server,
    resp: Client,
    http: Agent,
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
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound").to_string();
        let node = paxoslease_node::Config::new("test", 1).ephemeral().shards(shards);
        let config = Config::new(node.peer(1, address)).listen("127.0.0.1:0", "127.0.0.1:0");
        let server = Server::start_on(config, Some(socket)).expect("starts");
        block_on(server.node().ready()).expect("is its own majority");
        let endpoint = server.clients().expect("listens").to_string();
        let resp = Client::builder().endpoints(&endpoint);
        let resp = resp.connect_timeout(PATIENCE).request_timeout(PATIENCE);
        let http = Agent::config_builder().http_status_as_error(false).build().new_agent();
        Self { server, resp: resp.start().expect("a client"), http }
    }

    fn post(&self, name: &str, verb: &str, body: &Value) -> (u16, Value) {
        let address = self.server.http().expect("listens");
        let url = format!("http://{address}/v1/leases/{name}/{verb}");
        let mut reply = self.http.post(url).send_json(body).expect("answered");
        (reply.status().as_u16(), reply.body_mut().read_json().expect("a body"))
    }

    /// Takes a name, and leaves it held when this returns. `None` when it is held.
    fn take(&self, way: Way, name: &str) -> Option<u64> {
        match way {
            Way::Resp => {
                let lease = self.resp.try_acquire(name, TTL).blocking().ok()?;
                Some(std::mem::ManuallyDrop::new(lease).fence())
            }
            Way::Library => {
                let lease = self.server.node().try_acquire(name, TTL).blocking().ok()?;
                Some(std::mem::ManuallyDrop::new(lease).fence())
            }
            Way::Http => {
                let (status, body) = self.post(name, "acquire", &json!({"ttl": "60s"}));
                let fence = body["fence"].as_str().expect("a fence");
                (status == 200).then(|| fence.parse().expect("a number"))
            }
        }
    }

    /// The fence of whoever holds a name.
    fn look(&self, way: Way, name: &str) -> Option<u64> {
        match way {
            Way::Resp => self.resp.get_blocking(name).expect("answered").map(|seen| seen.fence),
            Way::Library => {
                block_on(self.server.node().inspect(name)).expect("answered").map(|seen| seen.fence)
            }
            Way::Http => {
                let address = self.server.http().expect("listens");
                let reply = self.http.get(format!("http://{address}/v1/leases/{name}")).call();
                let body: Value = reply.expect("answered").body_mut().read_json().expect("a body");
                body["fence"].as_str().map(|fence| fence.parse().expect("a number"))
            }
        }
    }
}

#[test]
fn every_way_to_a_name_leads_to_the_same_shard() {
    let ways = Ways::start(4);
    for (number, taker) in (0..48).zip(Way::ALL.into_iter().cycle()) {
        let name = format!("name-{number}");
        let fence = ways.take(taker, &name).expect("nobody has it");
        for other in Way::ALL {
            assert_eq!(ways.look(other, &name), Some(fence), "{taker:?} took {name}: {other:?}");
            assert_eq!(ways.take(other, &name), None, "{taker:?} took {name}: {other:?}");
        }
        // Whoever knows the fence may give it back, over any way (P7).
        let (status, body) = ways.post(&name, "release", &json!({"fence": fence.to_string()}));
        assert_eq!(status, 200, "{taker:?} took {name}: {body}");
        assert_eq!(ways.look(Way::Resp, &name), None);
    }
}
