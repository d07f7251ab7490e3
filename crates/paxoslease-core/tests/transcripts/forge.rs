//! Messages that a scene makes up. An answer goes back to the scene, not to the alleged sender.
//!
//! ```text
//! n2 -> n1 Prepare 5.2        ballots and tenures as in the messages of a hop; options name=, ttl=
//! n2 -> n1 Renew t1.3 5.2     the same for Heal
//! n2 -> n1 Promise 5.1        held=t9.3 for the lease that it reports, promised=5.1
//! ```

use crate::cell::{TTL, node, ttl};
use crate::scene::{Scene, route};
use crate::words::{Command, ballot, id, tenure};
use paxoslease_core::*;

impl Scene {
    /// Says whether the message was refused or changed nothing, and otherwise shows the answers.
    pub(crate) fn forge(&mut self, from: &str, to: &str, command: &Command<'_>) {
        let (from, to) = (id(from).expect("a node"), id(to).expect("a node"));
        let message = forged(command);
        let before = (self.cell.state(to), self.cell.letters.len(), self.cell.events.len());
        let drops = Refusal::ALL.map(|why| self.cell.shard(to).dropped(why));
        let outcome = self.cell.tell(to, from, message);
        let after = (self.cell.state(to), self.cell.letters.len(), self.cell.events.len());
        if let Err(refusal) = outcome {
            self.outcome(&format!("dropped: {refusal}"));
            assert_eq!(after, before, "a refused message changes nothing");
            assert_eq!(self.cell.shard(to).dropped(refusal), drops[refusal as usize] + 1);
            return;
        }
        if after == before {
            self.outcome("no answer and no change");
        }
        let is_answer = matches!(message, Message::Request(_));
        for letter in self.cell.take(|l| is_answer && l.from == node(to) && l.to == node(from)) {
            self.outcome(&route(&letter));
        }
    }
}

fn forged<'a>(command: &Command<'a>) -> Message<'a> {
    let (name, holder) = (command.name(), command.holder(""));
    let ttl = ttl(command.span("ttl", TTL));
    let promised = command.option("promised").map_or(Ballot::ZERO, ballot);
    let seen = |word| Seen { tenure: tenure(word), remaining: ttl, holder };
    let accepted = command.option("held").map(seen);
    let number = |word: &str| word.parse().expect("a number");
    let request = match command.words[3..] {
        ["Prepare", b] => Request::Prepare { name, ballot: ballot(b) },
        ["Propose", b] => Request::Propose { name, ballot: ballot(b), ttl, holder },
        ["Renew", t, b] => Request::Renew { name, tenure: tenure(t), ballot: ballot(b), ttl },
        ["Heal", t, b] => Request::Heal { name, tenure: tenure(t), ballot: ballot(b), ttl, holder },
        ["Release", t] => Request::Release { name, tenure: tenure(t), id: ReleaseId::from_u64(1) },
        ["Inspect", query] => Request::Inspect { name, query: number(query) },
        ["Note"] => return Message::Hint(Hint::Note { name, text: holder }),
        ["Freed", nodes] => {
            let nodes_before = nodes.parse().expect("a number");
            return Message::Hint(Hint::Freed { name, nodes_before });
        }
        ref reply => {
            return Message::Reply(match *reply {
                ["Promise", b] => Reply::Promise { ballot: ballot(b), accepted },
                ["Accept", b] => Reply::Accept { ballot: ballot(b) },
                ["Reject", b] => Reply::Reject { ballot: ballot(b), promised, accepted },
                ["NotHeld", b] => Reply::NotHeld { ballot: ballot(b), promised },
                ["Released", t] => {
                    Reply::Released { tenure: tenure(t), by: Some(ReleaseId::from_u64(1)) }
                }
                ["Inspected", query] => Reply::Inspected { query: number(query), accepted },
                _ => panic!("unknown message {reply:?}"),
            });
        }
    };
    Message::Request(request)
}
