//! Fairness: without a fault, a waiter sees at most a few hand-overs to others per contender.

use std::collections::{BTreeMap, BTreeSet};

use super::liveness::process;
use super::requests::Request;
use super::{Coverage, Rule, Run, Tenure, Violation, by_name, nanos};

pub(super) fn violations(run: Run<'_>, judged: &mut Coverage) -> Vec<Violation> {
    let mut contenders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for request in run.requests {
        contenders.entry(&request.ask.name).or_default().insert(process(&request.ask.client));
    }
    let tenures = by_name(run.tenures);
    let mut found = Vec::new();
    for request in run.requests.iter().filter(|request| request.ask.wait_ms > 0) {
        let Request { ask, asked_at, .. } = request;
        let (Some(at), Some(of_name)) = (request.answered_at(), tenures.get(&*ask.name)) else {
            continue;
        };
        if !run.health.is_well(asked_at.saturating_sub(nanos(run.bounds.settle)), at) {
            continue;
        }
        let begun = of_name.partition_point(|tenure| tenure.from <= *asked_at);
        let meanwhile = of_name[begun..].iter().take_while(|tenure| tenure.from < at);
        let others: Vec<&&Tenure> =
            meanwhile.filter(|tenure| tenure.client != ask.client).collect();
        let turns = others.len() as u64;
        judged.waits += 1;
        judged.most_turns = judged.most_turns.max(turns);
        let contenders = contenders.get(&*ask.name).map_or(1, BTreeSet::len) as u64;
        let most = run.bounds.turns * contenders;
        if turns > most {
            let text = format!(
                "{} waited for {:?} while it was handed on {turns} times among others; with \
                 {contenders} who want it, {most} are the most",
                ask.client, ask.name,
            );
            let last = others.last().map(|tenure| tenure.evidence.clone()).unwrap_or_default();
            let evidence = request.evidence.iter().cloned().chain(last).collect();
            let (rule, name) = (Rule::WaitersTakeTurns, ask.name.clone());
            found.push(Violation { rule, name, at, text, evidence });
        }
    }
    found
}
