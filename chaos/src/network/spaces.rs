//! A network of namespaces: one per place, connected by veth to a bridge in another namespace.
//!
//! nftables drop packets at the receiver, so that one direction can be cut alone. A place with
//! delays is attached to a bridge of its own, whose only link to the others is a [`Relay`]. All
//! names contain the process id of the harness, so that the next harness can remove what a killed
//! one left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::relay::{Relay, Tap};
use super::{Conditions, Interface, Network, Place};
use crate::cell::quietly;

/// The prefix of the namespaces of all harnesses.
const PREFIX: &str = "paxoslease-chaos-";

pub struct Spaces {
    relays: BTreeMap<Place, Relay>,
    places: Vec<Place>,
    conditions: Conditions,
    /// The current rules of each place.
    rules: BTreeMap<Place, String>,
}

/// Whether this process may make namespaces, and all tools are installed.
pub fn are_possible() -> bool {
    let probe = format!("{PREFIX}{}-probe", std::process::id());
    let made = quietly(Command::new("ip").args(["netns", "add", &probe]));
    let usable = made && quietly(nsenter(&probe).args(["nft", "list", "tables"]));
    made && quietly(Command::new("ip").args(["netns", "del", &probe]))
        && usable
        && Path::new(super::relay::TUN).exists()
}

/// Removes the namespaces of this harness, or of all dead ones.
pub fn remove(of_this_harness: bool) {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else { return };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
        let is_ours = owner == std::process::id();
        let is_dead = !Path::new(&format!("/proc/{owner}")).exists();
        if if of_this_harness { is_ours } else { is_dead } {
            quietly(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

impl Spaces {
    pub fn build(places: &[Place], seed: u64) -> Result<Self> {
        let mut spaces = Self {
            relays: BTreeMap::new(),
            places: places.to_vec(),
            conditions: Conditions::default(),
            rules: BTreeMap::new(),
        };
        let hub = namespace("hub");
        ip(&format!("netns add {hub}"))?;
        // Bridges must not learn addresses, because places move between them.
        ip(&format!("-n {hub} link add fast type bridge ageing_time 0"))?;
        ip(&format!("-n {hub} link set fast up"))?;
        for (index, place) in places.iter().enumerate() {
            let (space, port) = (namespace(&short(*place)), short(*place));
            ip(&format!("netns add {space}"))?;
            ip(&format!("-n {hub} link add {port} type veth peer name eth0 netns {space}"))?;
            ip(&format!("-n {hub} link set {port} master fast up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} address add {}/24 dev eth0", host(*place)))?;
            ip(&format!("-n {space} link set eth0 up"))?;
            ip(&format!("-n {hub} link add {port}-slow type bridge ageing_time 0"))?;
            ip(&format!("-n {hub} link set {port}-slow up"))?;
            let near = tap(&hub, index, "n", &format!("{port}-slow"))?;
            let far = tap(&hub, index, "f", "fast")?;
            spaces.relays.insert(*place, Relay::start(near, far, seed ^ index as u64)?);
        }
        Ok(spaces)
    }

    fn rules_at(&self, place: Place, conditions: &Conditions) -> String {
        let mut rules = String::new();
        for (from, to) in &conditions.cut {
            if *to == place {
                let _always = writeln!(rules, "iifname eth0 ip saddr {} drop", host(*from));
            }
        }
        if let Some(permille) = conditions.loss.get(&place) {
            let _always = writeln!(rules, "iifname eth0 numgen random mod 1000 < {permille} drop");
        }
        rules
    }
}

impl Network for Spaces {
    fn description(&self) -> &'static str {
        "network namespaces joined by veth and a bridge; nftables cut and lose, a relay of \
         Ethernet frames delays and reorders"
    }

    fn can_break(&self) -> bool {
        true
    }

    fn address(&self, node: u16, interface: Interface) -> String {
        let port = match interface {
            Interface::Clients => 7400,
            Interface::Peers => 7401,
            Interface::Http => 7402,
        };
        format!("{}:{port}", host(Place::Node(node)))
    }

    fn command(&self, place: Place, program: &Path) -> Command {
        let mut command = nsenter(&namespace(&short(place)));
        command.arg(program);
        command
    }

    fn set(&mut self, conditions: &Conditions) -> Result<()> {
        for place in self.places.clone() {
            let rules = self.rules_at(place, conditions);
            if self.rules.get(&place).is_none_or(|old| *old != rules) {
                filter(place, &rules)?;
                self.rules.insert(place, rules);
            }
            let delay = conditions.delay.get(&place).copied();
            if delay != self.conditions.delay.get(&place).copied() {
                let port = short(place);
                self.relays[&place].set(delay);
                let bridge = if delay.is_some() { format!("{port}-slow") } else { "fast".into() };
                ip(&format!("-n {} link set {port} master {bridge}", namespace("hub")))?;
            }
        }
        self.conditions = conditions.clone();
        Ok(())
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        remove(true);
    }
}

/// A device in the hub, attached to a bridge.
fn tap(hub: &str, index: usize, end: &str, bridge: &str) -> Result<Tap> {
    // The device begins in the namespace of this process, where its name must be unique.
    let name = format!("plx{}{end}{index}", std::process::id());
    let tap = Tap::new(&name)?;
    ip(&format!("link set {name} netns {hub}"))?;
    ip(&format!("-n {hub} link set {name} master {bridge} up"))?;
    Ok(tap)
}

/// Runs the program of its further arguments in a namespace.
fn nsenter(namespace: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}"));
    command
}

fn namespace(what: &str) -> String {
    format!("{PREFIX}{}-{what}", std::process::id())
}

fn short(place: Place) -> String {
    match place {
        Place::Node(id) => format!("n{id}"),
        Place::Clients(group) => format!("c{group}"),
    }
}

fn host(place: Place) -> String {
    match place {
        Place::Node(id) => format!("10.86.0.{id}"),
        Place::Clients(group) => format!("10.86.0.{}", 100 + group),
    }
}

fn ip(line: &str) -> Result<()> {
    let output = Command::new("ip").args(line.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {line}`: {}", said.trim());
    Ok(())
}

/// Replaces the rules of a place in one step.
fn filter(place: Place, rules: &str) -> Result<()> {
    let script = format!(
        "table ip chaos\ndelete table ip chaos\ntable ip chaos {{\nchain input {{\n\
         type filter hook input priority 0; policy accept;\n{rules}}}\n}}\n"
    );
    let mut nft = nsenter(&namespace(&short(place)))
        .args(["nft", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start nft")?;
    nft.stdin.take().expect("it was asked for").write_all(script.as_bytes())?;
    ensure!(nft.wait()?.success(), "nft refused\n{script}");
    Ok(())
}
