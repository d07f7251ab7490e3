//! What a lock must do, as `clients.test.mjs` says for libraries of Node. Each client is connected
//! to another node. The variables of the environment are the same.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rslock::{Lock, LockError, LockManager};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);

/// Three addresses. Those of one Redis are the same.
fn endpoints() -> Vec<String> {
    let given = std::env::var("REDIS_ENDPOINTS").expect("the servers under test");
    given.split(',').cycle().take(3).map(str::to_owned).collect()
}

/// Tries once.
fn client(endpoint: &str) -> LockManager {
    let mut manager = LockManager::new(vec![format!("redis://{endpoint}")]);
    manager.set_retry(1, Duration::from_millis(10));
    manager
}

fn clients() -> Vec<LockManager> {
    endpoints().iter().map(|endpoint| client(endpoint)).collect()
}

fn name(of: &str) -> String {
    format!("rslock-{of}-{}", std::process::id())
}

async fn is_refused(client: &LockManager, name: &str) -> bool {
    matches!(client.lock(name, LONG).await, Err(LockError::Unavailable))
}

/// Polls until the client gets the lock.
async fn eventually(client: &LockManager, name: &str) -> Lock {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.lock(name, LONG).await {
            Ok(lock) => return lock,
            Err(error) => assert!(Instant::now() < deadline, "{name}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn only_the_holder_can_release_and_extend() {
    let (all, name) = (clients(), name("owner"));
    let lock = all[0].lock(&*name, LONG).await.expect("it is free");
    assert!(is_refused(&all[1], &name).await && is_refused(&all[2], &name).await);
    let stranger = Lock {
        resource: lock.resource.clone(),
        val: b"never acquired".to_vec(),
        validity_time: 0,
        lock_manager: all[1].clone(),
    };
    all[1].unlock(&stranger).await;
    assert!(all[1].extend(&stranger, LONG).await.is_err());
    assert!(is_refused(&all[2], &name).await);
    let lock = all[0].extend(&lock, LONG).await.expect("it is held");
    lock.release().await;
    all[2].lock(&*name, LONG).await.expect("it is free again");
}

#[tokio::test]
async fn a_lock_expires_and_its_old_holder_can_do_nothing() {
    let (all, name) = (clients(), name("expiry"));
    let old = all[0].lock(&*name, SHORT).await.expect("it is free");
    assert!(is_refused(&all[1], &name).await);
    let lock = eventually(&all[1], &name).await;
    assert!(all[0].extend(&old, LONG).await.is_err());
    old.release().await;
    assert!(is_refused(&all[2], &name).await);
    assert!(matches!(all[2].is_freed(&lock).await, Ok(false)));
}

#[tokio::test]
async fn a_waiting_client_gets_the_lock_after_a_release() {
    let (all, name) = (clients(), name("waiting"));
    let lock = all[0].lock(&*name, LONG).await.expect("it is free");
    let waiting = tokio::spawn({
        let (client, name) = (all[1].clone(), name.clone());
        async move { client.acquire(&*name, LONG).await.map(|_| ()) }
    });
    assert!(is_refused(&all[2], &name).await);
    assert!(!waiting.is_finished());
    lock.release().await;
    let acquired = tokio::time::timeout(PATIENCE, waiting).await.expect("in time");
    acquired.expect("no panic").expect("the lock");
}

/// A cell of processes. It stops when it is dropped.
struct Cell {
    process: Child,
    nodes: Vec<Value>,
}

impl Cell {
    fn start(binary: &str) -> Self {
        let port = (12_000 + std::process::id() % 80 * 100).to_string();
        let mut process = Command::new(binary)
            .args(["dev", "--processes", "--json", "--port", &port])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a description");
        let described: Value = serde_json::from_str(&line).expect("JSON");
        let nodes = described["nodes"].as_array().expect("a list").clone();
        Self { process, nodes }
    }

    fn client(&self, node: usize) -> LockManager {
        client(self.nodes[node]["listen"]["clients"].as_str().expect("an address"))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        signal("-TERM", self.process.id());
        let _status = self.process.wait();
    }
}

fn signal(signal: &str, process: impl ToString) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Redis has no nodes to kill.
#[tokio::test]
async fn a_lock_outlives_the_node_that_granted_it() {
    let Ok(binary) = std::env::var("PAXOSLEASE_BINARY") else { return };
    let cell = Cell::start(&binary);
    let [killed, second, third] = [0, 1, 2].map(|node| cell.client(node));
    let _held = killed.lock("of the killed node", LONG).await.expect("it is free");
    let _short = killed.lock("expiring", SHORT).await.expect("it is free");
    let of_other = second.lock("of another node", LONG).await.expect("it is free");
    signal("-KILL", &cell.nodes[0]["pid"]);
    for survivor in [&second, &third] {
        assert!(is_refused(survivor, "of the killed node").await);
        assert!(is_refused(survivor, "of another node").await);
    }
    eventually(&third, "expiring").await;
    of_other.release().await;
    third.lock("of another node", LONG).await.expect("it is free again");
}
