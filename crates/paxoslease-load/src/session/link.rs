//! The conversation on one connection: what is to be sent, and whose answers are to come.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Link {
    /// To be sent.
    pub(super) out: Vec<u8>,
    /// Slots that wait for an answer, in the order of the answers.
    pub(super) asked: VecDeque<u32>,
    /// Answers to the greeting that are still to come, before all others.
    pub(super) greetings: u32,
    /// Whether it is listed as having something to send.
    pub(super) is_pending: bool,
}

impl Link {
    pub(super) fn new(slots: usize) -> Self {
        let asked = VecDeque::with_capacity(slots);
        Self { out: Vec::new(), asked, greetings: 0, is_pending: false }
    }

    /// Nothing said there counts any more.
    pub(super) fn reset(&mut self) {
        self.out.clear();
        self.asked.clear();
        self.greetings = 0;
    }
}
