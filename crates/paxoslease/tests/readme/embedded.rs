use std::error::Error;
use std::time::Duration;

use paxoslease::{Config, Node};

/// Node `id` of three; `peers` such as ["127.0.0.1:7401", "127.0.0.1:7411", "127.0.0.1:7421"]
pub async fn serve(id: u16, peers: [&str; 3], data_dir: &str) -> Result<(), Box<dyn Error>> {
    let config = Config::new("my-service", id)
        .data_dir(data_dir)
        .peer(1, peers[0]) // Beyond loopback, set `.tls(..)` too.
        .peer(2, peers[1])
        .peer(3, peers[2])
        .new_cell(true); // Founds the cell once all three run. Only for the first start of a cell.
    let node = Node::start(config).await?;
    let lease = node.acquire("master", Duration::from_secs(5)).await?; // Waits in line.
    println!("node {id} is master, with fence {}", lease.fence());
    let master = async {
        // Serve as the master.
    };
    lease.run(master).await?; // Ends before another node can be master.
    node.shutdown().await; // Releases the lease: the next master need not wait for the ttl.
    Ok(())
}
