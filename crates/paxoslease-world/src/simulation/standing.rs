//! What the judge knows of standing leases. A belief in one ends by its clock alone: neither its
//! user nor its process has to live.
//!
//! A crash of a member that stored the lease may cost it (protocol section 10). Such a lease is
//! judged no more.

use paxoslease_core::{Instant, Lasts, Tenure, Ttl};
use paxoslease_sim::trace::{TraceEvent, TrueTime};
use paxoslease_sim::{Check, Claim};

use super::Judge;
use crate::world::At;

/// The holders of standing leases have numbers from here on.
const HOLDERS_FROM: u32 = 1_000_000;

/// The standing lease of a user.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    host: usize,
    name: usize,
    tenure: Tenure,
    until: At,
}

impl Judge {
    /// A user was granted a standing lease. Times are on the clock of its host. Returns the number
    /// of its holder, which is not that of the user: the lease may outlast the user.
    pub(crate) fn granted_standing(
        &mut self,
        host: usize,
        (name, tenure): (usize, Tenure),
        end: (Instant, Lasts),
    ) -> u32 {
        let client = HOLDERS_FROM + self.counts.standing as u32;
        self.counts.standing += 1;
        self.note_grant(name, tenure);
        let until = self.standing_end(host, end);
        self.standing.insert(client, Standing { host, name, tenure, until });
        self.claim_standing(client);
        client
    }

    fn standing_end(&self, host: usize, (started_at, lasts): (Instant, Lasts)) -> At {
        let ends_at = self.drift.belief_ends_at(started_at, lasts.capped(Ttl::MAX));
        self.clocks[host].first_shows(ends_at)
    }

    fn claim_standing(&mut self, client: u32) {
        let Some(Standing { host, name, tenure, until }) = self.standing.get(&client).copied()
        else {
            return;
        };
        if until <= self.now {
            self.standing.remove(&client);
            return self.yields(name, client);
        }
        let (since, until) = (TrueTime(self.now), TrueTime(until));
        let (node, fence, text) = (host as u16 + 1, tenure.fence(), self.names[name].clone());
        self.record(|| TraceEvent::Believes { client, node, name: text, fence, until });
        self.checker.yields(name, client);
        let is_backed = !self.members_change;
        let claim = Claim { client, tenure, since, until, is_backed };
        self.checker.believes(TrueTime(self.now), name, claim);
    }

    /// A user is about to set another end. It gives up its belief beyond that (S6). Returns whether
    /// it believes in its lease.
    pub(crate) fn sets_standing(&mut self, client: u32, lasts: Lasts) -> bool {
        let Some(standing) = self.standing.get(&client).copied() else { return false };
        let asked_at = self.clocks[standing.host].read(self.now);
        let until = self.standing_end(standing.host, (asked_at, lasts)).min(standing.until);
        self.standing.insert(client, Standing { until, ..standing });
        self.claim_standing(client);
        self.standing.contains_key(&client)
    }

    /// The end that a user set is in force.
    pub(crate) fn renewed_standing(&mut self, client: u32, end: (Instant, Lasts)) {
        let Some(standing) = self.standing.get(&client).copied() else { return };
        let until = self.standing_end(standing.host, end);
        self.standing.insert(client, Standing { until, ..standing });
        self.claim_standing(client);
    }

    /// A user gives up its standing lease.
    pub(crate) fn gives_up_standing(&mut self, client: u32) {
        if let Some(standing) = self.standing.remove(&client) {
            self.checker.released(standing.name, standing.tenure);
            self.yields(standing.name, client);
        }
    }

    /// The members say that a standing lease is over. No user may believe in it.
    pub(crate) fn standing_over(&mut self, client: u32) {
        let is_believed = |standing: &&Standing| standing.until > self.now;
        if let Some(Standing { name, tenure, .. }) =
            self.standing.get(&client).copied().filter(|standing| is_believed(&standing))
        {
            let name = self.names[name].clone();
            let text = || format!("client {client} believed in {tenure} of {name}, which was over");
            self.broken(Check::StandingLeasesStand, text);
        }
        self.gives_up_standing(client);
    }

    /// A member forgets what it stored.
    pub(super) fn forget_standing(&mut self, host: usize) {
        let is_forgotten = |standing: &Standing| {
            let stored = self.checker.stored(host, standing.name).lease;
            stored.is_some_and(|(tenure, _)| tenure == standing.tenure)
        };
        let forgotten = self.standing.iter().filter(|(_, standing)| is_forgotten(standing));
        let forgotten: Vec<u32> = forgotten.map(|(client, _)| *client).collect();
        for client in forgotten {
            self.gives_up_standing(client);
        }
    }
}
