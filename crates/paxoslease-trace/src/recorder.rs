//! A shard that records its inputs and outputs.
//!
//! It records each step before any output of it leaves the process. So a killed process has never
//! sent a message that its trace lacks.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Deref;
use std::time::Duration;

use paxoslease_core::{
    Acquire, Ballot, Cell, CommandError, DurableRegister, Event, Holder, Instant, Label, Lasts,
    MemberSet, Message, Name, NodeId, Record, Refusal, Renew, Shard as Core, Snapshot, Tenure,
    Token, Transmit,
};

use crate::input::{Input, Outputs, Returned};
use crate::line::{Epoch, Header, Line, Step};
use crate::register::StoredRegister;

/// The longest trace, in bytes: enough for hours of a chaos run, and no risk of a full disk.
const LEN_MAX: u64 = 100 * 1024 * 1024;

/// The destination of a trace.
pub struct Sink {
    out: Option<Box<dyn Write + Send>>,
    len: u64,
    len_max: u64,
}

impl Sink {
    /// A trace of at most 100 MiB.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Some(out), len: 0, len_max: LEN_MAX }
    }

    /// The same sink, with another bound in bytes.
    #[must_use]
    pub const fn with_len_max(mut self, len_max: u64) -> Self {
        self.len_max = len_max;
        self
    }

    /// No trace at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { out: None, len: 0, len_max: 0 }
    }

    /// Writes one line in one call. The process ends if that fails, because a trace with a gap
    /// would accuse a correct node.
    pub(crate) fn write(&mut self, line: &Line) {
        let Some(out) = &mut self.out else { return };
        let mut text = serde_json::to_string(line).expect("lines are plain data");
        text.push('\n');
        self.len += text.len() as u64;
        let is_full = self.len > self.len_max;
        if is_full {
            text = serde_json::to_string(&Line::Full).expect("lines are plain data") + "\n";
        }
        out.write_all(text.as_bytes()).expect("the trace can be written");
        if is_full {
            self.out = None;
        }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of trace", self.len)
    }
}

/// The core's shard, with a trace. Every call that changes the shard goes through this type. Calls
/// that only read go through `Deref`.
#[derive(Debug)]
pub struct TracedShard {
    core: Core,
    sink: Sink,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    now: Instant,
}

impl Deref for TracedShard {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

#[expect(missing_docs, reason = "each method does what the core's method of the same name does")]
#[expect(clippy::missing_errors_doc, reason = "the same")]
impl TracedShard {
    /// Wraps a shard that has just started.
    #[must_use]
    pub fn new(mut core: Core, header: Header, sink: Sink) -> Self {
        let now = Instant::from_nanos(header.now);
        // The outputs of the start itself. A replay has the same.
        let Outputs { transmits, events, .. } = Outputs::drain(&mut core, Returned::Nothing);
        let mut shard =
            Self { core, sink, transmits: transmits.into(), events: events.into(), now };
        shard.sink.write(&Line::Begin(Box::new(header)));
        shard
    }

    fn step(&mut self, now: Instant, input: Input) -> Returned {
        self.now = now;
        let outputs = input.apply(&mut self.core, now).expect("a recorded input is valid");
        self.sink.write(&Line::Step(Step { now: now.as_nanos(), input, out: outputs.texts() }));
        self.transmits.extend(outputs.transmits);
        self.events.extend(outputs.events);
        outputs.returned
    }

    fn ask(&mut self, now: Instant, input: Input) -> Result<(), CommandError> {
        let Returned::Asked(asked) = self.step(now, input) else { unreachable!("a command") };
        asked
    }

    fn handle(&mut self, now: Instant, input: Input) -> Result<(), Refusal> {
        let Returned::Handled(handled) = self.step(now, input) else { unreachable!("a message") };
        handled
    }

    pub fn acquire(&mut self, now: Instant, acquire: Acquire<'_>) -> Result<(), CommandError> {
        let Acquire { token, name, holder, ttl, wait } = acquire;
        let (name, holder) = (name.to_string(), holder.to_string());
        self.ask(now, Input::Acquire { token: token.0, name, holder, ttl, wait })
    }

    pub fn abandon(&mut self, now: Instant, name: Name<'_>, token: Token) -> bool {
        let input = Input::Abandon { token: token.0, name: name.to_string() };
        self.step(now, input) == Returned::WasOpen(true)
    }

    pub fn renew(&mut self, now: Instant, renew: Renew<'_>) -> Result<(), CommandError> {
        let Renew { token, name, holder, tenure, ttl } = renew;
        let (name, holder) = (name.to_string(), holder.to_string());
        let (token, tenure) = (token.0, tenure.fence());
        self.ask(now, Input::Renew { token, name, holder, tenure, ttl })
    }

    pub fn release(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
        tenure: Tenure,
        patience: Duration,
    ) -> Result<(), CommandError> {
        let (token, name, tenure) = (token.0, name.to_string(), tenure.fence());
        self.ask(now, Input::Release { token, name, tenure, patience })
    }

    pub fn inspect(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
    ) -> Result<(), CommandError> {
        self.ask(now, Input::Inspect { token: token.0, name: name.to_string() })
    }

    pub fn acquire_durable(
        &mut self,
        now: Instant,
        acquire: Acquire<'_>,
        lasts: Lasts,
    ) -> Result<(), CommandError> {
        // The ttl is not used.
        let Acquire { token: Token(token), name, holder, ttl: _, wait } = acquire;
        let (name, holder) = (name.to_string(), holder.to_string());
        let lasts = lasts.as_millis().unwrap_or(u64::MAX);
        self.ask(now, Input::AcquireDurable { token, name, holder, lasts, wait })
    }

    pub fn keep(
        &mut self,
        now: Instant,
        token: Token,
        label: Label,
        tenure: Tenure,
        lasts: Lasts,
    ) -> Result<(), CommandError> {
        let (name, holder) = (label.name().to_string(), label.holder().to_string());
        let (token, tenure) = (token.0, tenure.fence());
        let lasts = lasts.as_millis().unwrap_or(u64::MAX);
        self.ask(now, Input::Keep { token, name, holder, tenure, lasts })
    }

    pub fn release_durable(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
        tenure: Tenure,
        patience: Duration,
    ) -> Result<(), CommandError> {
        let (token, name, tenure) = (token.0, name.to_string(), tenure.fence());
        self.ask(now, Input::ReleaseDurable { token, name, tenure, patience })
    }

    pub fn restore_durable(&mut self, now: Instant, register: DurableRegister) {
        self.step(now, Input::RestoreDurable(StoredRegister::of(&register)));
    }

    pub fn set_durable_room(&mut self, has_room: bool) {
        self.step(self.now, Input::DurableRoom(has_room));
    }

    pub fn durable_written(&mut self, now: Instant, sequence: u64) {
        self.step(now, Input::DurableWritten { sequence });
    }

    pub fn note(&mut self, name: Name<'_>, text: Holder<'_>) {
        let (name, text) = (name.to_string(), text.to_string());
        self.step(self.now, Input::Note { name, text });
    }

    pub fn handle_message(
        &mut self,
        now: Instant,
        from: NodeId,
        message: Message<'_>,
    ) -> Result<(), Refusal> {
        self.handle(now, Input::message(from, &message))
    }

    /// A wake-up before its time changes nothing and is not recorded.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.core.poll_timeout().is_some_and(|at| at <= now) {
            self.step(now, Input::Timeout);
        }
    }

    pub fn sweep(&mut self, now: Instant, slots_max: u32) {
        self.step(now, Input::Sweep { slots_max });
    }

    pub fn keep_up(&mut self, now: Instant, slots_max: u32) {
        self.step(now, Input::KeepUp { slots_max });
    }

    pub fn record_written(&mut self, now: Instant, record: Record) {
        self.step(now, Input::written(record));
    }

    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn set_watched(&mut self, watched: bool) {
        self.step(self.now, Input::Watched(watched));
    }

    pub fn set_learners(&mut self, learners: Vec<NodeId>) {
        let ids = learners.into_iter().map(NodeId::get).collect();
        self.step(self.now, Input::Learners(ids));
    }

    pub fn set_reachable(&mut self, now: Instant, reachable: MemberSet) {
        let ids = self.core.config().cell.nodes(reachable).map(NodeId::get).collect();
        self.step(now, Input::Reachable(ids));
    }

    pub fn handle_reconnect(&mut self, now: Instant, back: MemberSet) {
        let ids = self.core.config().cell.nodes(back).map(NodeId::get).collect();
        self.step(now, Input::Reconnect(ids));
    }

    pub fn set_round_trip(&mut self, longest: Duration) {
        self.step(self.now, Input::RoundTrip(longest));
    }

    pub fn set_turn_trip(&mut self, longest: Duration) {
        self.step(self.now, Input::TurnTrip(longest));
    }

    pub fn set_reclaim_trip(&mut self, longest: Duration) {
        self.step(self.now, Input::ReclaimTrip(longest));
    }

    pub fn members_are_fixed(&mut self) {
        self.step(self.now, Input::MembersAreFixed);
    }

    pub fn heard_counter(&mut self, from: NodeId, remembers: bool) {
        self.step(self.now, Input::Heard { from: from.get(), remembers });
    }

    /// A counter that is not higher changes nothing and is not recorded.
    pub fn observe_counter(&mut self, counter: u64) -> Result<(), Refusal> {
        if counter <= self.core.counter() {
            return Ok(());
        }
        self.handle(self.now, Input::Counter(counter))
    }

    /// A frame that is refused changes nothing except a counter of refusals, which no output shows.
    /// So this is not recorded.
    pub fn admit_epoch(&mut self, epoch: u32) -> Result<(), Refusal> {
        self.core.admit_epoch(epoch)
    }

    /// An epoch that is not higher changes nothing and is not recorded.
    pub fn adopt(&mut self, now: Instant, cell: Cell, floor: Ballot) {
        if cell.epoch() > self.core.config().cell.epoch() {
            // The core drops what it has not handed out: it belongs to the epoch before.
            self.transmits.clear();
            self.step(now, Input::Adopt { epoch: Epoch::of(&cell), floor: floor.as_u64() });
        }
    }

    pub fn set_counter_bound(&mut self, bound: u64) {
        self.step(self.now, Input::CounterBound(bound));
    }

    #[must_use]
    pub fn stop(mut self, now: Instant) -> Option<Snapshot> {
        let snapshot = self.core.stop(now);
        let leases = snapshot.as_ref().map(|snapshot| snapshot.leases().count());
        self.sink.write(&Line::Stop { now: now.as_nanos(), leases });
        snapshot
    }
}
