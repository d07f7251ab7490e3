//! Shorthands for tests that are the clock, the server and the executor of a client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paxoslease_core::Drift;
use paxoslease_holder::AskError;
use paxoslease_wire::resp::{Request, RespError};

pub(super) use crate::test_util::ManualClient;

/// A fence that some node could have issued.
pub(super) const FENCE: u64 = 7 << 10 | 1;

pub(super) const TTL: Duration = Duration::from_secs(15);

pub(super) fn unreachable() -> AskError {
    AskError::Unreachable { endpoints: vec!["n1:1".into()], problem: "refused".into() }
}

pub(super) fn drift() -> Drift {
    Drift::new(1000, Duration::from_millis(1)).expect("in bounds")
}

/// The reply to HELLO of a node that reports these members.
pub(super) fn hello(epoch: u32, members: &[&str]) -> String {
    let count = members.len();
    let members: String = members.iter().map(|address| format!("+{address}\r\n")).collect();
    format!(
        "%8\r\n+server\r\n+paxoslease\r\n+cell\r\n+c\r\n+node\r\n:1\r\n\
         +clock_drift_ppm\r\n:1000\r\n+clock_granularity_us\r\n:1000\r\n+max_lease_ms\r\n:60000\r\n\
         +epoch\r\n:{epoch}\r\n+members\r\n*{count}\r\n{members}"
    )
}

impl ManualClient {
    pub(super) fn connected(endpoints: usize) -> Self {
        let mut manual = Self::new(endpoints);
        manual.connect();
        manual
    }

    pub(super) fn connect(&mut self) {
        self.connected_to(drift());
    }

    pub(super) fn advance_ms(&self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    /// The requests that the client sends now, one string each.
    pub(super) fn sent(&mut self) -> Vec<String> {
        self.run();
        let out = self.take_sent();
        let (mut rest, mut sent) = (&out[..], Vec::new());
        while let Some((request, len)) = Request::parse(rest).expect("well formed") {
            sent.push(String::from_utf8_lossy(&request.args().join(&b' ')).into_owned());
            rest = &rest[len..];
        }
        assert!(rest.is_empty(), "only whole requests are sent");
        sent
    }

    /// Delivers replies or pushes of the server, and lets the client handle them.
    pub(super) fn reply(&mut self, bytes: &str) {
        self.try_reply(bytes).expect("well formed");
        self.run();
    }

    pub(super) fn try_reply(&mut self, bytes: &str) -> Result<(), RespError> {
        let now = self.now();
        self.engine.received(now, bytes.as_bytes()).map(|used| assert_eq!(used, bytes.len()))
    }
}

/// A future that a test polls.
pub(super) struct ManualFuture<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> ManualFuture<T> {
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// The result, if there is one.
    pub(super) fn poll(&mut self) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Polls it once, which sends the command to the client.
    #[track_caller]
    pub(super) fn begun(mut self) -> Self {
        assert!(self.poll().is_none(), "there is no answer yet");
        self
    }
}
