//! The client of this repository with real daemons.

mod electing;
mod following;
mod holding;
mod routing;
mod waiting;

use std::future::IntoFuture as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::Either;
use paxoslease_client::{Acquire, AcquireError, Client, LeaseGuard};

use crate::harness::{Cell, PATIENCE};

/// Longer than any test.
const TTL: Duration = Duration::from_secs(60);

/// A client that asks this node first and knows the others.
fn client(cell: &Cell, first: usize) -> Client {
    let nodes = (0..cell.0.len()).map(|n| (first + n) % cell.0.len());
    let endpoints: Vec<String> = nodes.map(|node| cell[node].resp().to_string()).collect();
    let builder = Client::builder().endpoints(&endpoints.join(","));
    // A node on a busy machine may be slow.
    let builder = builder.connect_timeout(PATIENCE).request_timeout(PATIENCE);
    builder.build().expect("a client")
}

/// Sends a request, whose answer is awaited later.
fn begun(wish: Acquire<'_>) -> impl Future<Output = Result<LeaseGuard, AcquireError>> + use<> {
    let mut asked = wish.into_future();
    match Pin::new(&mut asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Either::Left(asked),
        // The answer was faster than this thread.
        Poll::Ready(answer) => Either::Right(std::future::ready(answer)),
    }
}
