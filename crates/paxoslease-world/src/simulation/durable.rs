//! What the judge knows of durable leases (protocol section 10). A belief in one ends by its clock
//! alone: neither its user nor its process has to live, and no fault shortens it.

use paxoslease_core::{DurableRegister, Instant, Lasts, LiveLease, Name, Tenure, Ttl};
use paxoslease_sim::trace::{TraceEvent, TrueTime};
use paxoslease_sim::{Check, Claim, Keep};
use paxoslease_wire::ShardId;

use super::Judge;
use crate::world::{At, World};

/// The numbers of holders of durable leases begin here.
const HOLDERS_FROM: u32 = 1_000_000;

/// The durable lease of a user.
#[derive(Clone, Copy)]
pub(crate) struct Durable {
    host: usize,
    name: usize,
    /// The number of the tenure when the user last heard of it.
    tenure: Tenure,
    granted_at: At,
    until: At,
    /// An operation without an answer may take effect later: no belief reaches beyond its end
    /// (K10).
    until_max: At,
}

/// The text of a holder of a durable lease.
pub(crate) fn holder_text(client: u32) -> String {
    format!("durable {client}")
}

impl Judge {
    /// A user is about to ask for a durable lease. Returns the number of its holder, which is not
    /// that of the user, because the lease may outlast the user.
    pub(crate) fn asks_durable(&mut self, host: usize) -> u32 {
        let client = HOLDERS_FROM + self.asked_durable;
        self.asked_durable += 1;
        self.keepers.insert(holder_text(client), host);
        client
    }

    /// A user leaves its lease to itself. An operator may break the lease from now on.
    pub(crate) fn leaves_durable(&mut self, client: u32) {
        self.keepers.remove(&holder_text(client));
    }

    /// Whether a user still looks after the lease of this holder.
    pub(crate) fn is_kept(&self, holder: &str) -> bool {
        self.keepers.contains_key(holder)
    }

    /// A user was granted a tenure that is durable, or that it makes durable. Its fence may have
    /// risen since the members stored its ordinary lease (K7).
    pub(crate) fn granted_fence(&mut self, name: usize, tenure: Tenure) {
        self.counts.acquires += 1;
        if tenure.fence() <= self.highest_fence(name) {
            let text = || format!("{tenure} was granted after its fence");
            self.broken(Check::FencesRise, text);
        }
        self.checker.granted(TrueTime(self.now), name, tenure, false);
        self.note_fence(name, tenure);
    }

    fn highest_fence(&self, name: usize) -> u64 {
        let of_name = |((_, granted), fence): (&(usize, String), &u64)| {
            (*granted == self.names[name]).then_some(*fence)
        };
        self.granted.iter().filter_map(of_name).max().unwrap_or_default()
    }

    /// A user was granted a durable lease. Times are on the clock of its host.
    pub(crate) fn granted_durable(
        &mut self,
        (client, host): (u32, usize),
        (name, tenure): (usize, Tenure),
        end: (Instant, Lasts),
    ) {
        self.counts.durable += 1;
        let (until, granted_at) = (self.durable_end(host, end), self.now);
        let durable = Durable { host, name, tenure, granted_at, until, until_max: At::MAX };
        self.durable.insert(client, durable);
        self.claim_durable(client);
    }

    fn durable_end(&self, host: usize, (started_at, lasts): (Instant, Lasts)) -> At {
        if lasts == Lasts::FOREVER {
            return At::MAX;
        }
        let ends_at = self.drift.belief_ends_at(started_at, lasts.capped(Ttl::MAX));
        self.clocks[host].first_shows(ends_at)
    }

    fn claim_durable(&mut self, client: u32) {
        let Some(Durable { host, name, tenure, until, .. }) = self.durable.get(&client).copied()
        else {
            return;
        };
        self.checker.yields(name, client);
        if until <= self.now {
            self.durable.remove(&client);
            return self.yields(name, client);
        }
        let (since, until) = (TrueTime(self.now), TrueTime(until));
        let (node, fence, text) = (host as u16 + 1, tenure.fence(), self.names[name].clone());
        self.record(|| TraceEvent::Believes { client, node, name: text, fence, until });
        let claim = Claim { client, tenure, since, until, is_backed: false };
        self.checker.believes(TrueTime(self.now), name, claim);
    }

    /// A user is about to set another end. It first gives up its belief beyond that (K10). Returns
    /// whether it believes in its lease, and the fence that it knows.
    pub(crate) fn sets_end(&mut self, client: u32, lasts: Lasts) -> Option<u64> {
        let durable = self.durable.get(&client).copied()?;
        let asked_at = self.clocks[durable.host].read(self.now);
        let until = self.durable_end(durable.host, (asked_at, lasts)).min(durable.until);
        self.durable.insert(client, Durable { until, ..durable });
        self.claim_durable(client);
        self.durable.contains_key(&client).then(|| durable.tenure.fence())
    }

    /// Adds changes of registers to the trace.
    pub(super) fn look_at_registers(&mut self, world: &World, host: usize) {
        if self.keep == Keep::Nothing {
            return;
        }
        for name in 0..self.names.len() {
            let text = self.register_text(world, host, name).unwrap_or_default();
            let known = self.registers.entry((host, name)).or_default();
            if *known != text {
                known.clone_from(&text);
                let text = format!("register of {}: {text}", self.names[name]);
                self.note(host, text);
            }
        }
    }

    fn register_text(&self, world: &World, host: usize, name: usize) -> Option<String> {
        let process = world.process(host)?;
        let name = Name::new(&self.names[name]).expect("a name");
        let shard = ShardId::of(name, process.shards() as u16).index();
        let (register, is_durable) = process.core(usize::from(shard))?.durable_register(name)?;
        let DurableRegister { label, ballot, value } = register;
        let written = if is_durable { "on disk" } else { "being written" };
        Some(format!("{ballot} {value:?} of {}, {written}", label.holder()))
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&mut self, host: usize, text: String) {
        self.record(|| TraceEvent::Note { node: host as u16 + 1, text });
    }

    /// The end that a user asked for may take effect at any later time (K10).
    pub(crate) fn end_is_unknown(&mut self, client: u32, asked_at: At, lasts: Lasts) {
        let Some(durable) = self.durable.get(&client).copied() else { return };
        let asked_at = self.clocks[durable.host].read(asked_at);
        let end = self.durable_end(durable.host, (asked_at, lasts));
        let until_max = durable.until_max.min(end);
        self.durable.insert(client, Durable { until_max, ..durable });
    }

    /// The end that a user set is in force.
    pub(crate) fn kept(&mut self, client: u32, fence: Tenure, end: (Instant, Lasts)) {
        let Some(durable) = self.durable.get(&client).copied() else { return };
        self.counts.durable += 1;
        self.checker.granted(TrueTime(self.now), durable.name, fence, false);
        self.note_fence(durable.name, fence);
        // A belief that is over stays so.
        if durable.until <= self.now {
            return self.claim_durable(client);
        }
        let until = self.durable_end(durable.host, end).min(durable.until_max);
        self.durable.insert(client, Durable { until, tenure: fence, ..durable });
        self.claim_durable(client);
    }

    /// A user gives up its durable lease. Returns until when it believed in it.
    pub(crate) fn gives_up_durable(&mut self, client: u32) -> At {
        let Some(durable) = self.durable.remove(&client) else { return 0 };
        self.checker.released(durable.name, durable.tenure);
        self.yields(durable.name, client);
        durable.until
    }

    /// Members released the lease of a holder, which had given it up.
    pub(crate) fn released_durable(&mut self, holder: String) {
        self.counts.releases += 1;
        self.freed_at.insert(holder, self.now);
    }

    /// The members say that a durable lease is over. No user may believe in it until later.
    pub(crate) fn durable_is_over(&mut self, client: u32, until: At) {
        if until > self.now {
            let text = || format!("client {client} believed in its lease, which was over");
            self.broken(Check::DurableLeasesLast, text);
        }
    }

    /// A majority was asked for the holder of a name (P10).
    pub(crate) fn inspected(&mut self, name: usize, asked_at: At, seen: Option<&LiveLease>) {
        let holder = seen.map(|seen| String::from_utf8_lossy(seen.label.holder().as_bytes()));
        let is_missing = |(client, durable): &(&u32, &Durable)| {
            durable.name == name
                && durable.granted_at < asked_at
                && durable.until > self.now
                && holder.as_deref() != Some(&holder_text(**client))
        };
        if let Some((client, durable)) = self.durable.iter().find(is_missing) {
            let text = format!(
                "an inspection shows {holder:?}, but client {client} holds {} of {}",
                durable.tenure, self.names[name]
            );
            self.broken(Check::DurableLeasesLast, || text);
        }
        self.is_not_freed(asked_at, holder.as_deref());
    }

    /// A holder whose release was confirmed before the request is no longer a holder.
    pub(crate) fn is_not_freed(&mut self, asked_at: At, holder: Option<&str>) {
        let Some(freed_at) = holder.and_then(|holder| self.freed_at.get(holder)) else { return };
        if *freed_at < asked_at {
            let text = format!("{holder:?} was seen after its release had been confirmed");
            self.broken(Check::ReleaseFrees, || text);
        }
    }

    /// An operator breaks a lease that no user looks after any more (P9). Returns whether it may.
    pub(crate) fn breaks(&mut self, holder: &str) -> bool {
        if self.is_kept(holder) {
            return false;
        }
        let mut clients = self.durable.keys().copied();
        if let Some(client) = clients.find(|client| holder_text(*client) == holder) {
            self.gives_up_durable(client);
        }
        true
    }
}
