//! The phases of a load, from the first connection to the end, and its report.

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Connects and reads greetings.
    Opening,
    /// Acquires the leases that will be renewed.
    Filling,
    /// Runs without measuring.
    Warming {
        from: Duration,
    },
    Measuring {
        from: Duration,
    },
    /// Begins nothing new, and releases what is held.
    Draining,
    Closing,
    Done,
}

impl Phase {
    pub(super) const fn is_running(self) -> bool {
        matches!(self, Self::Warming { .. } | Self::Measuring { .. })
    }
}

impl<P: Protocol> Session<P> {
    /// Whether the load has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining | Phase::Closing | Phase::Done)
    }

    /// No server is left to release leases at.
    pub(crate) fn stop(&mut self) {
        self.phase = Phase::Done;
    }

    /// Enters the next phase while the current one is over.
    pub(super) fn advance(&mut self, now: Duration) -> Result<(), Failure> {
        loop {
            let before = self.phase;
            self.leave_phase_if_over(now);
            if self.phase == before {
                break;
            }
        }
        let is_silent = self.owes_answer() && self.silence(now) >= self.protocol.silence_max();
        if is_silent && !self.is_draining() { Err(Failure::Silent) } else { Ok(()) }
    }

    fn leave_phase_if_over(&mut self, now: Duration) {
        let is_idle = self.busy == 0;
        match self.phase {
            Phase::Opening if self.protocol.is_open(now) => {
                self.phase = Phase::Filling;
            }
            Phase::Filling if is_idle && self.cursor == self.leases.len() => {
                self.cursor = 0;
                self.arrivals.begin(now);
                self.phase = Phase::Warming { from: now };
            }
            Phase::Warming { from } if now >= from + self.warmup => {
                self.begun = u64::from(self.busy);
                self.counters.begin(now);
                self.phase = Phase::Measuring { from: now };
            }
            Phase::Measuring { from } if self.extent.is_over(now.saturating_sub(from)) => {
                self.end_measuring(now);
            }
            Phase::Draining
                if (is_idle && self.next_to_release().is_none())
                    || self.silence(now) >= SILENCE_MAX_AT_END =>
            {
                self.phase = Phase::Closing;
                self.heard_at = now;
                // The leases of a fill stay held.
                if self.workload != Workload::Fill {
                    self.protocol.close();
                }
            }
            Phase::Closing
                if self.protocol.is_closed() || self.silence(now) >= SILENCE_MAX_AT_END =>
            {
                self.phase = Phase::Done;
            }
            Phase::Opening
            | Phase::Filling
            | Phase::Warming { .. }
            | Phase::Measuring { .. }
            | Phase::Draining
            | Phase::Closing
            | Phase::Done => {}
        }
    }

    pub(super) fn end_measuring(&mut self, now: Duration) {
        let Phase::Measuring { from } = self.phase else { return };
        self.measured = (now.saturating_sub(from), self.arrivals.behind(now));
        self.counters.end_gap(now);
        let waiting = self.slots.iter().filter(|slot| slot.step.is_waiting());
        let waits = waiting.map(|slot| now.saturating_sub(slot.due_at));
        self.counters.unended_wait = waits.max().unwrap_or_default();
        self.phase = Phase::Draining;
        self.cursor = if self.protocol.close_releases() { self.leases.len() } else { 0 };
        self.heard_at = now;
        while let Some(Reverse((_, slot))) = self.retries.pop() {
            self.finish(slot as usize, now);
        }
    }

    fn owes_answer(&self) -> bool {
        self.busy > 0 || self.phase == Phase::Opening || self.has_unready
    }

    fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard_at)
    }

    fn next_to_release(&self) -> Option<usize> {
        (self.cursor..self.leases.len()).find(|lease| self.leases[*lease] != 0)
    }

    /// The due time of the next operation, if it is due.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Opening | Phase::Closing | Phase::Done => None,
            Phase::Filling => (self.cursor < self.leases.len()).then_some(now),
            Phase::Warming { .. } | Phase::Measuring { .. } => {
                if !self.has_budget() {
                    return None;
                }
                let due_at = self.arrivals.take(now)?;
                if self.cursor == self.leases.len() {
                    self.cursor = 0;
                }
                Some(due_at)
            }
            Phase::Draining => {
                self.cursor = self.next_to_release().unwrap_or(self.leases.len());
                (self.cursor < self.leases.len()).then_some(now)
            }
        }
    }

    fn has_budget(&self) -> bool {
        match (self.phase, self.extent) {
            (Phase::Measuring { .. }, Extent::Count(count)) => self.begun < count,
            _ => true,
        }
    }

    /// When to call [`Session::pump`] again; `None` if only an answer can change anything.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        let phase_ends_at = match (self.phase, self.extent) {
            (Phase::Warming { from }, _) => Some(from + self.warmup),
            (Phase::Measuring { from }, Extent::Lasting(span)) => Some(from + span),
            (Phase::Draining | Phase::Closing, _) => Some(self.heard_at + SILENCE_MAX_AT_END),
            _ => None,
        };
        let may_begin = self.phase.is_running() && !self.free.is_empty() && self.has_budget();
        let due_at = self.arrivals.next_at().filter(|_| may_begin);
        let retry = self.retries.peek().filter(|Reverse((_, slot))| self.protocol.is_ready(*slot));
        let retry_at = retry.map(|Reverse((at, _))| *at);
        let silent_at = self.owes_answer().then(|| self.heard_at + self.protocol.silence_max());
        [phase_ends_at, due_at, retry_at, silent_at].into_iter().flatten().min()
    }

    pub(crate) fn progress(&self, now: Duration) -> Progress {
        let (doing, from, share) = match self.phase {
            Phase::Opening => ("connecting", now, 0.0),
            Phase::Filling => {
                ("taking leases", now, self.cursor as f64 / self.leases.len().max(1) as f64)
            }
            Phase::Warming { from } => {
                ("warming up", now, share_of(now.saturating_sub(from), self.warmup))
            }
            Phase::Measuring { from } => {
                let share = match self.extent {
                    Extent::Lasting(span) => share_of(now.saturating_sub(from), span),
                    Extent::Count(count) => self.counters.finished as f64 / count as f64,
                };
                ("measuring", from, share)
            }
            Phase::Draining | Phase::Closing | Phase::Done => ("giving back", now, 1.0),
        };
        let elapsed = now.saturating_sub(from);
        Progress { doing, share: share.min(1.0), operations: self.counters.operations, elapsed }
    }

    /// The result of a load that is done.
    #[must_use]
    pub fn report(&self, plan: &Plan) -> Report {
        let (span, behind) = self.measured;
        let is_handover = self.workload == Workload::Handover;
        let counted = if is_handover { self.counters.handovers } else { self.counters.operations };
        let has_error = !self.counters.last_error.is_empty();
        Report {
            workload: plan.workload.name(),
            dialect: plan.dialect,
            endpoints: plan.endpoints.clone(),
            connections: plan.connections,
            in_flight: plan.in_flight,
            rate: plan.rate,
            seconds: span.as_secs_f64(),
            operations: self.counters.operations,
            per_second: counted as f64 / span.as_secs_f64().max(f64::MIN_POSITIVE),
            held: self.counters.held,
            errors: self.counters.errors(),
            last_error: has_error.then(|| self.counters.last_error.clone()),
            behind,
            unanswered: u64::from(self.busy),
            latency: self.counters.latency(),
            shares: is_handover.then(|| self.counters.shares()),
            longest_gap_ms: self.counters.longest_gap.as_secs_f64() * 1e3,
            whole_nanos: self.counters.whole_nanos.clone(),
        }
    }
}

fn share_of(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)
}
