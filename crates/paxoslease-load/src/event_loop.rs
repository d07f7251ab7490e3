//! The sockets and the clock of a [`Session`]: one thread, which blocks only in its poll.
//!
//! For each ready connection it reads the bytes, *then* the clock, lets the session answer, and
//! writes once. So the server has work again while the next connection is served.

mod alarm;
mod socket;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};
use paxoslease_client::Tls;

use self::alarm::Alarm;
use self::socket::{ReadResult, Socket};
use crate::error::LoadError;
use crate::plan::Plan;
use crate::protocol::{Connections, Failure};
use crate::report::{Progress, Report};
use crate::resp::Resp;
use crate::session::Session;

/// The timeout of a connection attempt.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// The interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// The number of no connection.
const ALARM: Token = Token(usize::MAX - 1);

/// Runs a load on a cell or a Redis server on this thread, and returns its result. Failed
/// operations are part of the report.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, LoadError> {
    plan.check()?;
    run_with(plan, Resp::new(plan), progress)
}

/// Like [`run`], with another protocol.
pub fn run_with<P: Connections>(
    plan: &Plan,
    protocol: P,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, LoadError> {
    plan.check()?;
    let mut event_loop = EventLoop::new(plan, protocol)?;
    event_loop.run(progress)?;
    Ok(event_loop.session.report(plan))
}

/// One address of an endpoint.
struct Candidate {
    endpoint: usize,
    address: SocketAddr,
}

struct EventLoop<'a, P> {
    plan: &'a Plan,
    /// All addresses, grouped by endpoint.
    candidates: Vec<Candidate>,
    poll: Poll,
    alarm: Option<Alarm>,
    sockets: Vec<Socket>,
    session: Session<P>,
    redials_after: Option<Duration>,
    started_at: Instant,
}

impl<'a, P: Connections> EventLoop<'a, P> {
    fn new(plan: &'a Plan, protocol: P) -> Result<Self, LoadError> {
        let candidates = resolve(&plan.endpoints)?;
        let poll = Poll::new()?;
        // The timeout of a poll is in milliseconds. Only a rate needs a finer timer.
        let alarm = if plan.rate.is_some() { Alarm::new(poll.registry(), ALARM)? } else { None };
        let socket = |route: Vec<usize>| {
            let of = |endpoint| {
                let all = candidates.iter().enumerate();
                all.filter(move |(_, candidate)| candidate.endpoint == endpoint)
            };
            Socket::new(route.into_iter().flat_map(of).map(|(place, _)| place).collect())
        };
        let mut event_loop = Self {
            sockets: protocol.routes().into_iter().map(socket).collect(),
            redials_after: protocol.redials_after(),
            session: Session::new(plan, protocol),
            started_at: instant(),
            plan,
            candidates,
            poll,
            alarm,
        };
        for link in 0..event_loop.sockets.len() {
            event_loop.dial(link)?;
        }
        Ok(event_loop)
    }

    fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(1024);
        let mut shown_at = Duration::ZERO;
        loop {
            let now = self.now();
            self.check_dials(now)?;
            self.pump(now)?;
            if self.session.is_done() {
                return Ok(());
            }
            if now >= shown_at {
                progress(self.session.progress(now));
                shown_at = now + PROGRESS_EVERY;
            }
            self.wait(&mut events, now, shown_at)?;
            for event in &events {
                if event.token() != ALARM {
                    self.serve(event.token().0, event)?;
                }
                if self.session.is_done() {
                    return Ok(());
                }
            }
        }
    }

    fn now(&self) -> Duration {
        instant() - self.started_at
    }

    /// Waits until a socket is ready or something is due.
    fn wait(&mut self, events: &mut Events, now: Duration, at_most: Duration) -> io::Result<()> {
        let dials = self.sockets.iter().filter_map(Socket::wake_at).min();
        let due = [Some(at_most), self.session.wake_at(), dials].into_iter().flatten().min();
        let span = due.unwrap_or(at_most).saturating_sub(now);
        let waited = match &mut self.alarm {
            Some(alarm) if !span.is_zero() => {
                alarm.ring_after(span)?;
                self.poll.poll(events, None)
            }
            _ => self.poll.poll(events, Some(span)),
        };
        match waited {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            waited => waited,
        }
    }

    /// Handles an event of a connection.
    fn serve(&mut self, link: usize, event: &Event) -> Result<(), LoadError> {
        if self.sockets[link].dial_ends_at.is_some() {
            match self.sockets[link].connected() {
                Ok(true) => {
                    self.session.protocol().connected(link);
                    self.send(link)?;
                }
                Ok(false) => return Ok(()),
                Err(error) => return self.redial(link, error),
            }
        } else if event.is_writable() {
            self.send(link)?;
        }
        if event.is_readable() { self.receive(link) } else { Ok(()) }
    }

    fn receive(&mut self, link: usize) -> Result<(), LoadError> {
        loop {
            let taken = match self.sockets[link].read() {
                Ok(taken) => taken,
                Err(error) => return self.redial(link, error),
            };
            let now = self.now();
            let heard = self.session.received(link, self.sockets[link].input(), now);
            let read = heard.map_err(|failure| self.explain(link, failure))?;
            self.sockets[link].consume(read);
            self.pump(now)?;
            match taken {
                // No reply to this load is that long.
                ReadResult::Full if read == 0 => {
                    let failure = Failure::Garbled("an answer without end".to_owned());
                    return Err(self.explain(link, failure));
                }
                ReadResult::Full => {}
                ReadResult::All => return Ok(()),
            }
        }
    }

    /// Lets the session begin due operations, and sends its requests.
    fn pump(&mut self, now: Duration) -> Result<(), LoadError> {
        if let Err(failure) = self.session.pump(now) {
            let link = self.session.protocol().waiting().unwrap_or(0);
            return Err(self.explain(link, failure));
        }
        while let Some(link) = self.session.outgoing().next_pending() {
            self.send(link)?;
        }
        Ok(())
    }

    fn send(&mut self, link: usize) -> Result<(), LoadError> {
        match self.sockets[link].write(self.session.outgoing().unsent(link)) {
            Ok(()) => Ok(()),
            Err(error) => self.redial(link, error),
        }
    }

    fn dial(&mut self, link: usize) -> Result<(), LoadError> {
        let ends_at = self.now() + DIAL_MAX;
        let address = self.candidates[self.sockets[link].candidate()].address;
        let endpoint = self.endpoint(link);
        let Plan { tls, token, token_in_clear, .. } = self.plan;
        let is_exposed = !address.ip().to_canonical().is_loopback();
        let tls = match tls {
            Some(tls) => tls.connection(&endpoint).map(Some),
            None if token.is_some() && is_exposed && !token_in_clear => {
                Err("without TLS others could read the token".to_owned())
            }
            None => Ok(None),
        };
        let tls = tls.map_err(|problem| LoadError::Tls { endpoint, problem })?;
        let registry = self.poll.registry();
        match self.sockets[link].dial(address, tls, registry, Token(link), ends_at) {
            Ok(()) => Ok(()),
            Err(error) => self.redial(link, error),
        }
    }

    /// A connection failed: goes to the next address. Unless the protocol pauses between attempts,
    /// it is an error if all addresses failed in a row.
    fn redial(&mut self, link: usize, error: io::Error) -> Result<(), LoadError> {
        if let Some(problem) = Tls::explain(&error) {
            return Err(LoadError::Tls { endpoint: self.endpoint(link), problem });
        }
        let is_greeted = self.session.protocol().is_greeted(link);
        let now = self.now();
        let lost = self.session.lost(link, now);
        lost.map_err(|failure| self.explain(link, failure))?;
        let socket = &mut self.sockets[link];
        socket.failures = if is_greeted { 0 } else { socket.failures + 1 };
        if let Some(after) = self.redials_after {
            socket.rest_until(now + after);
            return Ok(());
        }
        if socket.failures == socket.candidates.len() {
            if self.session.is_draining() {
                self.session.stop();
                return Ok(());
            }
            let endpoints = self.plan.endpoints.join(", ");
            return Err(LoadError::Unreachable { endpoints, source: error });
        }
        socket.candidates.rotate_left(1);
        self.dial(link)
    }

    /// Ends slow connection attempts, and redials after a pause.
    fn check_dials(&mut self, now: Duration) -> Result<(), LoadError> {
        for link in 0..self.sockets.len() {
            let socket = &mut self.sockets[link];
            if socket.is_rested(now) {
                socket.candidates.rotate_left(1);
                self.dial(link)?;
            } else if socket.dial_ends_at.is_some_and(|ends_at| now >= ends_at) {
                self.redial(link, ErrorKind::TimedOut.into())?;
            }
        }
        Ok(())
    }

    fn endpoint(&self, link: usize) -> String {
        let candidate = &self.candidates[self.sockets[link].candidate()];
        self.plan.endpoints[candidate.endpoint].clone()
    }

    fn explain(&self, link: usize, failure: Failure) -> LoadError {
        let endpoint = self.endpoint(link);
        match failure {
            Failure::Foreign(server) => LoadError::Foreign { endpoint, server },
            Failure::Refused(text) => LoadError::Refused { endpoint, text },
            Failure::Garbled(text) => LoadError::Garbled { endpoint, text },
            Failure::Fill(text) => LoadError::Fill { endpoint, text },
            Failure::Taken(name) => LoadError::Taken { name },
            Failure::Silent => LoadError::Silent { endpoint, silence: self.session.silence_max() },
        }
    }
}

/// All addresses. An unknown host is an error only if no other one is known. An endpoint that is
/// not valid is always an error.
fn resolve(endpoints: &[String]) -> Result<Vec<Candidate>, LoadError> {
    let mut candidates = Vec::new();
    let mut problem = None;
    for (endpoint, text) in endpoints.iter().enumerate() {
        match text.to_socket_addrs() {
            Ok(addresses) => {
                candidates.extend(addresses.map(|address| Candidate { endpoint, address }));
            }
            Err(source) => {
                let is_nonsense = source.kind() == ErrorKind::InvalidInput;
                let nowhere = LoadError::Resolve { endpoint: text.clone(), source };
                if is_nonsense {
                    return Err(nowhere);
                }
                problem = Some(nowhere);
            }
        }
    }
    if candidates.is_empty() {
        let source = io::Error::other("no address");
        let nowhere = || LoadError::Unreachable { endpoints: endpoints.join(", "), source };
        return Err(problem.unwrap_or_else(nowhere));
    }
    Ok(candidates)
}

#[expect(clippy::disallowed_methods, reason = "this is where a load's time comes from")]
fn instant() -> Instant {
    Instant::now()
}
