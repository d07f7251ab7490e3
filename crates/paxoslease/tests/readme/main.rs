//! The Rust of the README: it is what is here, and it runs against nodes on loopback.

#[expect(unreachable_pub, reason = "readers copy it as it is")]
mod client;
#[expect(unreachable_pub, reason = "readers copy it as it is")]
mod embedded;

use std::time::Duration;

use paxoslease::{AcquireError, AskError, Config, Node, block_on};
use paxoslease_rig::{Folder, free_ports};
use paxoslease_server::Server;

#[test]
fn the_readme_shows_what_these_tests_run() {
    let readme = include_str!("../../../../README.md");
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).collect();
    let blocks: Vec<&str> = blocks.iter().filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks, [include_str!("client.rs"), include_str!("embedded.rs")]);
    assert!(!readme.contains("```rust,"), "every Rust block runs");
}

#[test]
fn the_client_runs() {
    let node = Config::new("readme", 1).peer(1, "127.0.0.1:7401").listen("off");
    let config = paxoslease_server::Config::new(node.ephemeral()).listen("127.0.0.1:0", "off");
    let server = Server::start(config).expect("starts");
    let endpoint = server.clients().expect("it listens").to_string();
    block_on(client::nightly(&endpoint)).expect("the job ran");
    server.shutdown();
}

#[test]
fn embedded_nodes_run() {
    let folder = Folder::new("readme").expect("a folder");
    let addresses = free_ports::<3>().expect("free ports").map(|port| format!("127.0.0.1:{port}"));
    let peers = addresses.each_ref().map(String::as_str);
    let data_dir = |id: u16| folder.join(id.to_string()).display().to_string();
    let others = [1, 2].map(|id| {
        let config = Config::new("my-service", id).data_dir(data_dir(id)).new_cell(true);
        let config = (1..).zip(peers).fold(config, |config, (id, at)| config.peer(id, at));
        Node::start_blocking(config).expect("starts")
    });
    block_on(embedded::serve(3, peers, &data_dir(3))).expect("it was master");
    drop(others);
}

#[test]
fn a_first_start_says_how_to_found_a_cell() {
    let folder = Folder::new("readme").expect("a folder");
    let config = Config::new("my-service", 1).data_dir(folder.path()).peer(1, "127.0.0.1:7401");
    let node = Node::start_blocking(config.listen("off")).expect("starts");
    let refused = node.try_acquire("master", Duration::from_secs(5)).blocking();
    let Err(AcquireError::Ask(AskError::NoQuorum(text))) = refused else { panic!("{refused:?}") };
    assert!(text.contains("not a member of a cell yet"), "{text}");
    assert!(text.contains("new_cell(true)"), "{text}");
    node.shutdown_blocking();
}
