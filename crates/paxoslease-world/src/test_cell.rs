//! A cell in one process, on a virtual clock, for tests of what uses leases.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use paxoslease_client::Client;
use paxoslease_core::Rules;
use paxoslease_node::{Config, Node};

use crate::clock::HostClock;
use crate::network::Presence;
use crate::world::{Bells, World};

/// A cell for your own tests: no sockets, no files, and time passes when the test says so.
///
/// Nodes and clients are real: everything that a [`Node`], a [`Client`] and their leases can do,
/// they do here, from any thread and any runtime. Only watches and elections of clients are not
/// served. The network takes no time, so what needs no waiting is done while the clock stands
/// still. The rest is done by [`Self::advance`]: a lease runs out, the quarantine of a restarted
/// node ends, a waiter has its turn.
///
/// Every method that takes the id of a node panics if the cell has no such node.
///
/// ```
/// # mod paxoslease { pub use {paxoslease_holder::LeaseState, paxoslease_world::TestCell}; }
/// use std::time::Duration;
/// use paxoslease::{LeaseState, TestCell};
///
/// let cell = TestCell::new(3);
/// let ttl = Duration::from_secs(10);
/// let master = cell.node(1).acquire("master", ttl).blocking()?;
/// let client = cell.client(); // Any number of them.
/// assert!(client.try_acquire("master", ttl).blocking().is_err());
///
/// cell.advance(Duration::from_secs(60));
/// assert!(master.is_held(), "a lease renews itself");
///
/// cell.kill(1);
/// assert!(master.is_held(), "until its time is over");
/// cell.advance(ttl);
/// assert_eq!(master.state(), LeaseState::Lost);
/// let next = client.acquire("master", ttl).blocking()?;
/// assert!(next.fence() > master.fence());
/// # Ok::<(), paxoslease_holder::AcquireError>(())
/// ```
#[derive(Debug)]
pub struct TestCell {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread of the world is told.
enum Order {
    /// A shard or a client was posted something.
    Rung,
    Do(Box<dyn FnOnce(&mut World) + Send>),
    End,
}

impl TestCell {
    /// A cell of `members` nodes, 1 to 9, numbered from 1. They have just been started, for the
    /// first time, and know each other. The longest lease is a minute.
    ///
    /// # Panics
    /// When `members` is not 1 to 9.
    #[must_use]
    pub fn new(members: u16) -> Self {
        let mut config = Config::new("test", 1).shards(1).ephemeral().allow_plaintext();
        for id in 1..=members {
            config = config.peer(id, format!("node-{id}:7401"));
        }
        config.check().expect("a cell has 1 to 9 members");
        let (orders, inbox) = channel();
        let bell = orders.clone();
        let bells = Bells::new(move || {
            // A world that ended needs no bell.
            let _ended = bell.send(Order::Rung);
        });
        let run = move || {
            let mut world = World::new(0, bells);
            for id in 1..=members {
                let mut config = config.clone();
                config.node = id;
                let host = world.add_node(config, HostClock::new(0, 0), true);
                world.start(host).expect("a disk in memory works");
            }
            work(&mut world, &inbox);
        };
        let thread = thread::Builder::new().name("paxoslease-test-cell".to_owned()).spawn(run);
        let cell = Self { orders, thread: Some(thread.expect("a thread")) };
        cell.advance(Duration::ZERO);
        cell
    }

    /// The handle of a node that runs.
    ///
    /// # Panics
    /// When there is no such node, or it was killed or shut down.
    #[must_use]
    pub fn node(&self, id: u16) -> Node {
        let node = self.ask(id, |world, host| world.node(host));
        node.unwrap_or_else(|| panic!("node {id} does not run"))
    }

    /// The handle of a new client of this cell, in a process of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        self.tell(|world| {
            let nodes: Vec<usize> =
                (0..world.len()).filter(|host| !world.is_client(*host)).collect();
            let host = world.add_client(nodes, HostClock::new(0, 0), Rules::ALL);
            world.client(host).expect("it was just started")
        })
    }

    /// Lets time pass. What is due meanwhile happens, in order; returns when it has.
    pub fn advance(&self, span: Duration) {
        self.tell(move |world| {
            let until = world.now().saturating_add(span.as_nanos() as u64);
            world.run_until(until);
        });
    }

    /// Ends a node as `kill -9` does. Its disk is kept, and its requests are answered as those of a
    /// node that was shut down. Guards of its leases hold until their time is over.
    pub fn kill(&self, id: u16) {
        self.ask(id, |world, host| world.kill(host, Presence::Refusing));
    }

    /// Starts a node that was killed or shut down; one that was killed begins with its quarantine.
    /// One that runs is shut down first, as in a rolling restart: that takes no time, unless
    /// no majority confirms that its leases are released.
    pub fn restart(&self, id: u16) {
        self.ask(id, |world, host| {
            world.stop(host);
            world.start(host).expect("a disk in memory works");
        });
    }

    /// Cuts a node off from all others, without a notice to any node.
    pub fn isolate(&self, id: u16) {
        self.ask(id, |world, host| {
            let links = (0..world.len()).flat_map(|other| [(host, other), (other, host)]);
            let links: Vec<_> = links.collect();
            world.network.blocked.extend(links);
        });
    }

    /// Connects every node with every other again.
    pub fn heal(&self) {
        self.tell(|world| world.network.blocked.clear());
    }

    /// Pauses the process of a node, as SIGSTOP does. The clock continues, and requests wait.
    pub fn pause(&self, id: u16) {
        self.ask(id, World::pause);
    }

    /// Resumes a paused node.
    pub fn resume(&self, id: u16) {
        self.ask(id, World::resume);
    }

    /// Changes something about the host of a node, and waits until all is quiet.
    fn ask<T: Send + 'static>(
        &self,
        id: u16,
        change: impl FnOnce(&mut World, usize) -> T + Send + 'static,
    ) -> T {
        let answer = self.tell(move |world| {
            let host = usize::from(id).checked_sub(1);
            let host = host.filter(|host| *host < world.len() && !world.is_client(*host));
            host.map(|host| change(world, host))
        });
        answer.unwrap_or_else(|| panic!("this cell has no node {id}"))
    }

    fn tell<T: Send + 'static>(&self, change: impl FnOnce(&mut World) -> T + Send + 'static) -> T {
        let (reply, answer) = channel();
        let order = Box::new(move |world: &mut World| {
            let output = change(world);
            world.run_until(world.now());
            // The caller waits for it.
            let _gone = reply.send(output);
        });
        let sent = self.orders.send(Order::Do(order));
        assert!(sent.is_ok(), "the thread of this cell panicked");
        answer.recv().expect("the thread of this cell panicked")
    }
}

fn work(world: &mut World, inbox: &Receiver<Order>) {
    world.run_until(world.now());
    while let Ok(order) = inbox.recv() {
        match order {
            Order::Rung => world.run_until(world.now()),
            Order::Do(order) => order(world),
            Order::End => return,
        }
    }
}

impl Drop for TestCell {
    fn drop(&mut self) {
        // A thread that panicked has said so.
        let _panicked = self.orders.send(Order::End);
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use super::*;
    use paxoslease_holder::{AskError, LeaseLost, LeaseState, block_on};

    const TTL: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    /// Lets time pass until a thread is done.
    fn advance_until<T>(cell: &TestCell, thread: JoinHandle<T>) -> T {
        while !thread.is_finished() {
            cell.advance(SECOND / 10);
        }
        thread.join().expect("no panic")
    }

    #[test]
    fn clients_hold_and_lose_leases_on_the_virtual_clock() {
        let cell = TestCell::new(3);
        let (first, second) = (cell.client(), cell.client());
        let lease = first.acquire("x", TTL).blocking().expect("granted");
        assert!(second.try_acquire("x", TTL).blocking().is_err());
        cell.advance(TTL * 5);
        assert!(lease.is_held(), "a lease renews itself");
        let status = second.status_blocking().expect("a node answers").status;
        assert!(status.ready && status.ballots_remaining_ratio > 0.5, "{status:?}");
        (1..=3).for_each(|id| cell.pause(id));
        cell.advance(TTL);
        assert_eq!(lease.state(), LeaseState::Lost);
        (1..=3).for_each(|id| cell.resume(id));
        let waiter = thread::spawn(move || second.acquire("x", TTL).blocking());
        let next = advance_until(&cell, waiter).expect("free");
        assert!(next.fence() > lease.fence());
    }

    #[test]
    fn an_isolated_holder_learns_of_its_loss_and_others_go_on() {
        let cell = TestCell::new(3);
        let mut lease = cell.node(1).acquire("x", TTL).blocking().expect("granted");
        let fence = lease.fence();
        cell.advance(TTL);
        assert_eq!(lease.changed_blocking(), LeaseState::Held, "renewed meanwhile");
        assert_eq!(block_on(lease.run(async { 7 })), Ok(7));
        cell.isolate(1);
        let resource = Arc::new(());
        let used = Arc::clone(&resource);
        let holder = thread::spawn(move || {
            while lease.changed_blocking() == LeaseState::Held {}
            let work = async move {
                pending::<()>().await;
                drop(used);
            };
            (block_on(lease.run(work)), lease.changed_blocking())
        });
        let lost = Err(LeaseLost { name: "x".to_owned(), fence });
        assert_eq!(advance_until(&cell, holder), (lost, LeaseState::Lost));
        assert_eq!(Arc::strong_count(&resource), 1, "the work was dropped");
        cell.advance(SECOND);
        let next = cell.node(2).try_acquire("x", TTL).blocking().expect("its time is over");
        assert!(next.fence() > fence);
        cell.heal();
        cell.advance(SECOND * 3);
        assert!(cell.node(1).try_acquire("x", TTL).blocking().is_err());
    }

    #[test]
    fn guards_of_a_killed_node_hold_until_their_time_is_over() {
        let cell = TestCell::new(1);
        let node = cell.node(1);
        let lease = node.acquire("x", TTL).blocking().expect("granted");
        cell.kill(1);
        assert_eq!(node.acquire("x", TTL).blocking().expect_err("gone"), AskError::Stopped.into());
        cell.restart(1);
        assert!(lease.is_held());
        let holder = thread::spawn(move || lease.lost_blocking());
        advance_until(&cell, holder);
        let node = cell.node(1);
        let next = thread::spawn(move || node.acquire("x", TTL).blocking());
        drop(advance_until(&cell, next).expect("its quarantine ends"));
    }

    #[test]
    fn a_rolling_restart_costs_others_nothing() {
        let cell = TestCell::new(3);
        let lease = cell.node(3).acquire("x", TTL).blocking().expect("granted");
        for id in [1, 2] {
            cell.restart(id);
            cell.advance(SECOND);
        }
        cell.advance(TTL * 2);
        assert_eq!(lease.state(), LeaseState::Held);
        cell.restart(3);
        assert_eq!(lease.state(), LeaseState::Lost, "a node that leaves gives its leases back");
        drop(cell.node(1).try_acquire("x", TTL).blocking().expect("free at once"));
    }

    #[test]
    fn no_caller_waits_for_a_cell_that_is_gone() {
        let cell = TestCell::new(3);
        let node = cell.node(1);
        let lease = node.acquire("x", TTL).blocking().expect("granted");
        let waiting = cell.node(2);
        let waiter = thread::spawn(move || waiting.acquire("x", TTL).blocking());
        drop(cell);
        assert_eq!(waiter.join().expect("no panic").expect_err("gone"), AskError::Stopped.into());
        assert_eq!(lease.state(), LeaseState::Lost);
        node.shutdown_blocking();
    }
}
