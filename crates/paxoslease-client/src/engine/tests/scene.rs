//! A client whose clock, server and executor are this file.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paxoslease_core::Drift;
use paxoslease_wire::resp::{Request, RespError};

pub(super) use crate::test_util::{ByHand as Scene, REQUEST_TIMEOUT};

/// A fence that some node could have issued.
pub(super) const FENCE: u64 = 7 << 10 | 1;

pub(super) fn drift() -> Drift {
    Drift::new(1000, Duration::from_millis(1)).expect("in bounds")
}

impl Scene {
    pub(super) fn connected(endpoints: usize) -> Self {
        let mut scene = Self::new(endpoints);
        scene.connect();
        scene
    }

    pub(super) fn connect(&mut self) {
        self.connected_to(drift());
    }

    pub(super) fn pass_ms(&self, millis: u64) {
        self.pass(Duration::from_millis(millis));
    }

    /// What the client says now.
    pub(super) fn said(&mut self) -> Vec<String> {
        self.turn();
        let out = self.take_said();
        let (mut rest, mut said) = (&out[..], Vec::new());
        while let Some((request, len)) = Request::parse(rest).expect("well formed") {
            let words: Vec<_> = request
                .args()
                .iter()
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect();
            said.push(words.join(" "));
            rest = &rest[len..];
        }
        assert!(rest.is_empty(), "only whole requests are said");
        said
    }

    /// The one thing the client says now.
    #[track_caller]
    pub(super) fn said_one(&mut self) -> String {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// What the server says.
    pub(super) fn hear(&mut self, bytes: &str) {
        self.try_hear(bytes).expect("well formed");
        self.turn();
    }

    pub(super) fn try_hear(&mut self, bytes: &str) -> Result<(), RespError> {
        let now = self.now();
        self.engine.received(now, bytes.as_bytes()).map(|used| assert_eq!(used, bytes.len()))
    }
}

/// A future that is polled when the script says so.
pub(super) struct Asked<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> Asked<T> {
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// The answer, if there is one.
    pub(super) fn poll(&mut self) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Begins to ask.
    #[track_caller]
    pub(super) fn begun(mut self) -> Self {
        assert!(self.poll().is_none(), "nobody can have answered yet");
        self
    }
}
