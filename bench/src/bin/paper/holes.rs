//! What the paper lacks: the schedules in which its algorithm, taken literally, goes wrong, each
//! with its diagram and the rule that closes it; and the diagrams of all others.
//!
//! The stories are written here; whether an invariant breaks, and which, comes from the run.

use anyhow::ensure;
use paxoslease_bench::page::Page;
use paxoslease_sim::baseline::{Naive, Paper};
use paxoslease_sim::scenario::Scenario;
use paxoslease_sim::{Check, PaxosLease, Report, diagram};

/// One hole.
struct Hole {
    scenario: Scenario,
    heading: &'static str,
    /// What happens, step by step.
    story: &'static str,
    /// The rule of protocol.md that closes it.
    remedy: &'static str,
    /// What the harm depends on, where it does not follow from the paper's own assumptions.
    caveat: Option<&'static str>,
}

const HOLES: [Hole; 7] = [
    Hole {
        scenario: Scenario::PromiseNotRaised,
        heading: "A Propose that was never prepared leaves no promise",
        story: "Node 1 prepares and proposes; its Propose to node 2 is slow. Later node 3 gets its \
                promises from nodes 1 and 3, and its Propose is accepted by nodes 2 and 3: client 2 \
                holds the lease. But node 2 never saw that Prepare, and accepting does not raise what \
                it has promised, so the old, lower Propose of node 1 arrives, is accepted and replaces \
                the lease by a shorter one. When that has expired, nodes 1 and 2 are free for client \
                3, while client 2's time still runs.",
        remedy: "A3 raises `promised` when it accepts, and refuses while another tenure is live; each \
                 of the two would do here. The paper's proof (part 2) overlooks that an acceptor's \
                 state can be replaced by a lower ballot before it expires. This needs neither \
                 restarts nor duplicates, only lost and delayed messages.",
        caveat: None,
    },
    Hole {
        scenario: Scenario::LateProposeAfterRestart,
        heading: "A Propose from before a restart arrives after it",
        story: "Node 2 promises node 3's ballot, crashes, and rejoins after waiting for M, as the paper \
                demands. Its promise is forgotten. It accepts client 2's lease, which has a lower \
                ballot, and then the Propose for which it gave the forgotten promise: that \
                replaces client 2's lease. When the short replacement has expired, nodes 2 and 3 \
                are free and client 3 is let in beside client 2. Waiting longer does not help, since a \
                message can be late by any time.",
        remedy: "A3 refuses a Propose while another tenure is live, whatever was promised. R1 keeps a \
                 ceiling of all promises on disk, so a restarted node would reject the old ballot \
                 anyway; it is written ahead in large steps, not once per lease.",
        caveat: None,
    },
    Hole {
        scenario: Scenario::LateThirdReply,
        heading: "Every further Promise sets the timer again",
        story: "Client 1's Propose is accepted by node 2, but the Accept is slow. Then a third \
                Promise, slower still, arrives; the listing of step 3 has no guard against that, so it \
                sets the timer again and sends its Propose again, which is lost. The old Accept now \
                completes the round, and client 1 counts its time from the second setting of the \
                timer, while node 2 has counted from the first.",
        remedy: "P3: a round's timer is set when the round begins and never again.",
        caveat: Some(
            "The text of step 3 says that the proposer \"starts a timer\", which can be read as once. \
             It is the listing that sets it again.",
        ),
    },
    Hole {
        scenario: Scenario::DuplicateReplies,
        heading: "Replies are counted, not acceptors",
        story: "Of five acceptors, client 1's node reaches itself and one other, whose replies the \
                network delivers twice. The listings count responses (`numOpen++`, `numAccepted++`), so \
                these are three, a majority. The other three acceptors have heard nothing and let \
                client 2 in.",
        remedy: "P3: each acceptor counts once per round.",
        caveat: Some(
            "Duplication is not on the paper's list of failures (restarts, splits, loss, reordering, \
             delay). A network or a reconnecting transport that resends does duplicate.",
        ),
    },
    Hole {
        scenario: Scenario::ShorterRenewal,
        heading: "A renewal can be shorter than what is left",
        story: "Client 1 holds a long lease and extends it by a time shorter than what it has left. \
                The acceptors set their timers to the shorter time. Once these have run out, client \
                2 is let in, while client 1 still counts on what it was told first.",
        remedy: "A4: a renewal keeps the later expiry, so it never takes back what was granted.",
        caveat: Some(
            "In the paper's own terms the proposer sets its timer again too, and its state says \"I do \
             not have the lease\" in time. The harm needs a client that keeps its own time, as one \
             on another machine must.",
        ),
    },
    Hole {
        scenario: Scenario::StaleRelease,
        heading: "An Accept after the release",
        story: "Client 1 has its lease from two Accepts and releases it; client 2 acquires it elsewhere. \
                Then the third Accept of the first round arrives. The proposer has switched its state \
                but still knows its ballot number, so it counts the Accept and is the lease owner \
                again. Client 3, who asks it next, is told so.",
        remedy: "P6: a released tenure is over for good, whatever still arrives.",
        caveat: Some(
            "The paper only says that the proposer \"switches its internal state\"; one that forgets \
             its ballot number too is safe. And the paper has no clients: that the next one is \
             told what the proposer's state says is how we put clients at a node.",
        ),
    },
    Hole {
        scenario: Scenario::FenceAfterRestart,
        heading: "Fences go back when everybody restarts",
        story: "Node 3 acquires and releases twice, so its ballots are ahead. All nodes restart and wait \
                for M. Nothing remembers the highest ballot, and node 1 acquires with a lower one than \
                has been seen before.",
        remedy: "R1: a ceiling of all ballots is on disk, and a starting node begins above it.",
        caveat: Some(
            "No two clients hold the lease here, and the paper promises growing ballot numbers only \
             \"per proposer\". It matters to whoever uses the ballot number as a fence, as one has to \
             against a holder that was paused.",
        ),
    },
];

/// The schedules in which both behave, and what they are there to show.
const OTHERS: [(Scenario, &str); 6] = [
    (
        Scenario::Uncontended,
        "acquire and renew in one round trip each, where the paper needs two; a release that is \
         confirmed, where the paper's is not",
    ),
    (Scenario::SplitVote, "three contenders, a vote each"),
    (Scenario::HolderDies, "the holder and its node die while another client waits"),
    (
        Scenario::SnapshotInQuarantine,
        "a hole that snapshots would open, which the paper does not have: a quarantined node \
         must not write one (R4)",
    ),
    (Scenario::LateMajority, "a majority that completes too late is worth nothing (P1)"),
    (Scenario::RenewAfterLapse, "a lapsed lease cannot be renewed (A4)"),
];

const PAPER: (&str, &str) = ("paper", "the paper's algorithm, taken literally");
const OURS: (&str, &str) = ("paxoslease", "PaxosLease");
const NAIVE: (&str, &str) = ("naive", "the naive majority vote");

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    page.heading("7. What the paper lacks");
    page.say(
        "Each of these schedules is a script: it holds back, loses and repeats messages and crashes \
         nodes, the same for every algorithm. `paxoslease sim --scenario NAME --algorithm paper` plays \
         it with the paper's rules, without `--algorithm` with ours; `--diagram FILE.svg` draws it. The \
         first two need nothing but failures the paper says it handles. For the others, what the harm \
         depends on is said. That its rules leave holes has been pointed out by the paper's own author \
         (*PaxosLease Revisited*, 2026).",
    );
    let mut rows = Vec::new();
    for Hole { scenario, .. } in &HOLES {
        let (paper, ours) = (scenario.play(Paper), scenario.play(PaxosLease::default()));
        ensure!(!paper.violations.is_empty(), "{scenario}: the paper's algorithm keeps its word");
        ensure!(ours.violations.is_empty(), "{scenario}: ours does not keep its word");
        // Of several that break, the most harmful one, which comes first among the checks.
        let worst = |report: &Report| report.violations.iter().map(|v| v.check).min();
        let words = |report: &Report| worst(report).map_or("holds", verdict);
        rows.push(vec![
            format!("[`{scenario}`](#{scenario})"),
            words(&paper).to_owned(),
            words(&ours).to_owned(),
        ]);
    }
    page.table(&["schedule", "paper", "PaxosLease"], &rows);
    for hole in &HOLES {
        tell(page, hole);
    }
    page.subheading("Where both behave");
    let mut items = Vec::new();
    for (scenario, what) in OTHERS {
        let mut played =
            vec![(OURS, scenario.play(PaxosLease::default())), (PAPER, scenario.play(Paper))];
        if scenario == Scenario::SplitVote {
            played.push((NAIVE, scenario.play(Naive)));
        }
        let mut links = Vec::new();
        for (of, report) in &played {
            ensure!(report.violations.is_empty(), "{scenario}: {} breaks", of.1);
            let (path, svg) = draw(scenario, *of, report);
            links.push(format!("[{}]({path})", of.0));
            page.keep(&path, svg);
        }
        items.push(format!("`{scenario}`: {what} ({})", links.join(", ")));
    }
    page.list(&items);
    Ok(())
}

fn tell(page: &mut Page, hole: &Hole) {
    let Hole { scenario, heading, story, remedy, caveat } = hole;
    page.subheading(scenario.name());
    let (paper, ours) = (scenario.play(Paper), scenario.play(PaxosLease::default()));
    page.say(&format!("**{heading}.** {story}"));
    page.say(&format!("**The remedy.** {remedy}"));
    if let Some(caveat) = caveat {
        page.say(&format!("**It depends.** {caveat}"));
    }
    for (of, report) in [(PAPER, &paper), (OURS, &ours)] {
        let (path, svg) = draw(*scenario, of, report);
        page.picture(&path, &format!("{scenario}: {}", of.1), svg);
    }
}

const fn verdict(check: Check) -> &'static str {
    match check {
        Check::OneHolder => "two holders at once",
        Check::FencesRise => "a fence goes back",
        _ => "an invariant breaks",
    }
}

/// The picture that `paxoslease sim --scenario NAME --diagram` draws, after its path.
fn draw(scenario: Scenario, (key, name): (&str, &str), report: &Report) -> (String, String) {
    let options = diagram::RenderOptions {
        title: format!("{scenario}: {name}"),
        caption: scenario.description().to_owned(),
        ..diagram::RenderOptions::default()
    };
    let path = format!("diagrams/{scenario}-{key}.svg");
    (path, diagram::render(&report.trace, &options))
}
