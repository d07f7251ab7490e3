//! The parts of a node's state that a scene can show.

use crate::scene::Scene;
use crate::words::{self, Command};
use paxoslease_core::*;

impl Scene {
    /// The live tenure of the default name in each acceptor.
    pub(crate) fn leases(&mut self) {
        let members =
            self.cell.shards.iter().filter(|shard| shard.floor().is_some()).count() as u16;
        let live = |id| self.cell.live(id).map_or("free".to_owned(), |tenure| tenure.to_string());
        let leases: Vec<String> = (1..=members).map(live).collect();
        self.outcome(&leases.join(", "));
    }

    /// Until when the client of a request believes in its lease.
    pub(crate) fn belief(&mut self, request: &str) {
        let token = request.trim_start_matches('#').parse().expect("a request");
        let ends_at = self.cell.belief(token).expect("a grant").ends_at();
        self.outcome(&format!("believed until {} ms", ends_at.since(self.began_at).as_millis()));
    }

    pub(crate) fn show(&mut self, id: u16, what: &str, command: &Command<'_>) -> bool {
        let (now, name) = (self.cell.clock(id), command.name());
        let shard = self.cell.shard(id);
        let after = |at: Instant| format!("{:?}", at.since(now));
        let text = match what {
            "rounds" => {
                let RoundCounts { direct, prepared, renewals } = shard.round_counts();
                let mut rounds: Vec<&Round> = shard.rounds().collect();
                rounds.sort_unstable_by_key(|round| round.ballot);
                let rounds: Vec<String> = rounds
                    .iter()
                    .map(|round| {
                        format!(
                            "{} {:?}, {} refused",
                            round.ballot,
                            round.phase,
                            round.refused.len()
                        )
                    })
                    .collect();
                let begun = format!("{direct} direct, {prepared} prepared, {renewals} renewals");
                format!("{begun}; in flight: [{}]; {} waiters", rounds.join("; "), shard.waiters())
            }
            "register" => shard.register(name).map_or("no entry".to_owned(), |register| {
                let lease = register.accepted.map_or(String::new(), |accepted| {
                    let Accepted { tenure, expires_at } = accepted;
                    format!(", accepted {tenure}, expires in {}", after(expires_at))
                });
                format!("promised {}{lease}", register.promised)
            }),
            "lease" => shard.lease(now, name).map_or("free".to_owned(), |seen| words::lease(&seen)),
            "table" => {
                let floor =
                    shard.floor().map_or("no floor".to_owned(), |floor| format!("floor {floor}"));
                let full = if shard.is_full() { ", full" } else { "" };
                format!("{} names{full}, {floor}", shard.entries())
            }
            "counter" => {
                let problem = shard.ballot_problem();
                let problem = problem.map_or(String::new(), |problem| format!(", {problem}"));
                format!("counter {} of {}{problem}", shard.counter(), shard.counter_bound())
            }
            "dropped" => {
                let dropped = Refusal::ALL.map(|why| (why, shard.dropped(why)));
                let dropped = dropped.iter().filter(|(_, count)| *count > 0);
                let dropped: Vec<String> =
                    dropped.map(|(why, count)| format!("{count} {why:?}")).collect();
                format!("dropped: [{}]", dropped.join(", "))
            }
            "record" => words::record(shard.record()),
            "quarantine" => format!("quarantined for {:?}", shard.quarantine_remaining(now)),
            "snapshot" => shard.clone().stop(now).map_or("no snapshot".to_owned(), |snapshot| {
                format!("a snapshot of {} leases", snapshot.leases().count())
            }),
            "wake-up" => shard
                .poll_timeout()
                .map_or("no wake-up".to_owned(), |at| format!("wakes up in {}", after(at))),
            "waited" => {
                let waited: Vec<String> = shard
                    .waited_names()
                    .map(|waited| {
                        let by = waited.held_by.map_or("?".to_owned(), words::sighting);
                        format!("{} wait for {}, {by}", waited.waiters, waited.name)
                    })
                    .collect();
                format!("[{}]", waited.join("; "))
            }
            _ => return false,
        };
        self.outcome(&text);
        true
    }
}
