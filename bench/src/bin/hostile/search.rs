//! The worst input of every command: a search that keeps the inputs with the longest turns of the
//! shard's thread and changes them further.
//!
//! The commands come from the node itself (`COMMAND DOCS`), and the routes of HTTP from
//! docs/openapi.json, so that a new one is searched too. A turn is measured in processor time of
//! its thread, because the machine may be busy. Seeds are fixed, though the figures are not.

mod input;
mod node;
mod web;

use std::time::Duration;

use anyhow::Result;
use paxoslease_rig::clock;

use input::{Generator, Random, Words};
use node::{Cost, Measured, Spec};

/// Inputs of a command that are changed further: those with the longest turns.
const KEPT: usize = 8;
/// A new best input is measured this often, and the shortest of its longest turns counts.
const MEASURED: usize = 3;
/// A search that finds worse inputs goes on for up to this many times as long.
const LONGER: u32 = 15;
/// ARCHITECTURE.md: no request of bounded size takes longer.
const TURN_MAX: Duration = Duration::from_millis(1);

/// An input and what it took.
struct Found {
    words: Words,
    cost: Cost,
}

/// What becomes of a search.
struct Worst {
    name: String,
    tried: u32,
    found: Found,
}

pub(crate) fn search(only: Option<&str>, each: Duration) -> Result<()> {
    let mut node = Measured::start()?;
    let mut worst = Vec::new();
    let mut generator = Generator::default();
    let mut patterns = input::subscriptions(b"*aaaaaaaab");
    let is_wanted = |spec: &Spec| only.is_none_or(|only| spec.name.eq_ignore_ascii_case(only));
    let mut specs: Vec<Spec> = node.commands()?.into_iter().filter(is_wanted).collect();
    // PUBLISH has subscribers to the worst pattern, and EVALSHA the worst script.
    specs.sort_by_key(|spec| ["evalsha", "publish"].iter().position(|last| spec.name == *last));
    for spec in &specs {
        if spec.name == "publish" {
            node.subscribe(&patterns)?;
        }
        let found = search_command(&mut node, &mut generator, spec, each)?;
        match spec.name.as_str() {
            "keys" => patterns = input::subscriptions(&found.found.words[1]),
            "eval" => generator.sha = node.know(&found.found.words[1])?,
            _ => {}
        }
        worst.push(found);
    }
    println!("longest turn in processor time, of {each:?} of search since the last worse input");
    report(&mut worst);
    println!("steps of a turn, the most: {}", node.steps_max()?);
    drop(node);
    if only.is_none() {
        println!("\nprocessor time of a request by HTTP, all threads, its connection included");
        report(&mut web::search(each)?);
    }
    Ok(())
}

fn search_command(
    node: &mut Measured,
    generator: &mut Generator,
    spec: &Spec,
    each: Duration,
) -> Result<Worst> {
    node.fill()?;
    let mut kept: Vec<Found> = Vec::new();
    let mut random = Random::new(&spec.name);
    let mut until = clock::now() + each;
    let latest = clock::now() + LONGER * each;
    let mut tried = 0;
    let mut known = input::known(spec);
    while clock::now() < until.min(latest) {
        let words = match kept.len() {
            _ if !known.is_empty() => known.swap_remove(0),
            0 => generator.words(&mut random, spec),
            _ if random.below(4) == 0 => generator.words(&mut random, spec),
            len => {
                let parent = &kept[random.below(len)].words;
                generator.changed(&mut random, spec, parent)
            }
        };
        tried += 1;
        let mut cost = node.cost(&words)?;
        let is_best = |cost: Cost| kept.first().is_none_or(|best| cost.turn > best.cost.turn);
        for _ in 1..MEASURED {
            if is_best(cost) {
                node.fill()?;
                cost = cost.min(node.cost(&words)?);
            }
        }
        if is_best(cost) {
            until = clock::now() + each;
        }
        kept.push(Found { words, cost });
        kept.sort_by_key(|found| std::cmp::Reverse(found.cost.turn));
        kept.truncate(KEPT);
    }
    let mut name = spec.name.to_uppercase();
    name.extend(spec.subcommand.iter().flat_map(|subcommand| [" ", subcommand]));
    Ok(Worst { name, tried, found: kept.swap_remove(0) })
}

fn report(worst: &mut [Worst]) {
    worst.sort_by_key(|worst| std::cmp::Reverse(worst.found.cost.turn));
    println!("| what | longest turn, us | whole, us | bytes | inputs tried | worst input |");
    println!("|---|--:|--:|--:|--:|---|");
    for Worst { name, tried, found: Found { words, cost } } in &*worst {
        let bytes: usize = words.iter().map(Vec::len).sum();
        let (turn, whole) = (cost.turn.as_micros(), cost.whole.as_micros());
        let mark = if cost.turn > TURN_MAX { " !" } else { "" };
        let shown = input::shown(words);
        println!("| {name} | {turn}{mark} | {whole} | {bytes} | {tried} | `{shown}` |");
    }
}
