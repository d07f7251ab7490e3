//! How it was measured, on what, and what the figures do not say.

use std::time::Duration;

use paxoslease_bench::page::Page;

use crate::case::{CONNECTIONS, Case, HANDOVER_SPANS, What};
use crate::figures::Figures;
use crate::measure::SETTLE;
use crate::side::Side;

pub(crate) fn how_to_read(page: &mut Page, figures: &Figures) {
    let rounds = figures.method.rounds;
    page.say(&format!(
        "Everything shares {} cores: the service with all its members, and the load. So the figures \
         say what the same work costs on the same machine, not what a cell on machines of its own \
         reaches. A figure is the median of {rounds} rounds with the least and the greatest of them \
         behind it; *beside Redis* is the factor within each round. Redis, Redlock and ours take \
         turns load by load, so that a machine that is slower for a while is slower for all of them; \
         ZooKeeper and etcd have their turns in a block of their own, up to a few minutes away.",
        figures.machine.cores,
    ));
    if let Some(promises) = promises(figures) {
        page.say(&promises);
    }
}

/// What is compared is not the same thing, and this says in what it differs.
fn promises(figures: &Figures) -> Option<String> {
    let is_there = |side| figures.sides().contains(&side);
    let redis = is_there(Side::Redis).then_some(
        "One Redis loses every lock when it dies, and its clients are safe only as long as it \
         does not.",
    );
    let redlock = is_there(Side::Redlock).then_some(
        "Redlock survives the death of one server, but relies on clocks and gives no fence.",
    );
    let logs = (is_there(Side::Etcd) || is_there(Side::ZooKeeper)).then_some(
        "etcd and ZooKeeper write every change to the disks of a majority before they answer, \
         because they keep data, too; leases would not need that, and ours does not do it.",
    );
    let parts: Vec<&str> = [redis, redlock, logs].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("They do not promise the same. {}", parts.join(" ")))
}

pub(crate) fn section(page: &mut Page, figures: &Figures) {
    method(page, figures);
    services(page, figures);
    machine(page, figures);
    caveats(page, figures);
}

fn method(page: &mut Page, figures: &Figures) {
    let method = &figures.method;
    page.heading("Method");
    page.list(&[
        "`cargo xtask bench peers` installs what is missing, builds, starts every cell as real \
         processes on loopback with ports and folders of their own, and ends them by their ids."
            .to_owned(),
        "The load is one thread in one process, whoever is asked. It reads what a connection has, \
         answers from slots that each have one operation under way, and writes once, pipelined alike \
         for all. Only etcd's clients are tasks of a runtime on that one thread, because gRPC needs \
         one."
            .to_owned(),
        format!(
            "Only one service is under load at a time. Each turn runs {} ms before anything \
             counts, then {} ms that do, {HANDOVER_SPANS} times as long for hand-overs. Every round begins with \
             another service.",
            method.warmup_ms, method.turn_ms,
        ),
        blocks(figures),
        format!(
            "ZooKeeper and etcd talk among themselves even when nobody asks, so their processes are \
             stopped (SIGSTOP) while others are measured, and put under load after SIGCONT until all \
             is well, before anything counts. The first time a JVM gets {} s of several loads in a \
             full run, so that it has compiled what it is going to run.",
            SETTLE.as_secs(),
        ),
        format!(
            "A pair is a lease taken and given back. Redis: `SET key token NX PX ms` and a script \
             that compares the token and deletes. Redlock: the same on three servers, granted by \
             a majority in time. ZooKeeper: create and delete of an ephemeral node. etcd: a \
             transaction that puts the key if it is absent, on a lease of the client that was \
             granted before, and one that deletes it. The ttl is {} s, but for sessions of \
             ZooKeeper's and clients' leases of etcd's, about which see the settings.",
            crate::case::TTL.as_secs(),
        ),
        "Hand-overs in ZooKeeper and etcd follow their own recipes: sequential nodes, or keys by \
         revision, each client watching the one before it. One thing is done better than in \
         etcd's recipe: the watch begins after the revision that was read, not with it, because \
         etcd looks at a watch that begins in its past only every 100 ms. When another change comes \
         in between, that still happens."
            .to_owned(),
    ]);
}

/// Who has turns when.
fn blocks(figures: &Figures) -> String {
    let method = &figures.method;
    let (span, warmup) =
        (Duration::from_millis(method.turn_ms), Duration::from_millis(method.warmup_ms));
    let lasts = |is_meant: &dyn Fn(Side) -> bool| -> Duration {
        let rows = figures.rows.iter().filter(|row| is_meant(row.side));
        rows.map(|row| warmup + row.case.lasts(span)).sum()
    };
    let ones = Side::ALL.into_iter().filter(|side| side.is_restless());
    let longest = ones.map(|one| lasts(&|side| side == one)).max().unwrap_or_default();
    format!(
        "Within a round, Redis, Redlock and ours have their turns of one load one after the other, \
         then those of the next. Each cell of ZooKeeper or etcd has all of its turns in a row, at \
         most {} s of them, so that it is woken once. A whole round has {} s of turns, and which \
         block comes first changes from round to round.",
        longest.as_secs(),
        lasts(&|_| true).as_secs(),
    )
}

fn services(page: &mut Page, figures: &Figures) {
    page.heading("Versions and settings");
    page.say(
        "Defaults, but for what is said here. Variants of a service have its fastest settings that \
         somebody could want, or its defaults where the fastest ones are compared above. Where the \
         page is about many leases or about what goes wrong, nodes of ours have other settings in two \
         things: they listen for HTTP, where their metrics are read, and have a `--max-lease`, of a \
         minute to an hour or what is said there.",
    );
    let rows: Vec<Vec<String>> = figures
        .services
        .iter()
        .map(|service| {
            let title = service.side.title().to_owned();
            vec![title, service.version.clone(), service.settings.clone()]
        })
        .collect();
    page.listing(&["service", "version", "settings"], &rows);
}

fn machine(page: &mut Page, figures: &Figures) {
    let machine = &figures.machine;
    page.heading("Machine");
    let kind = if machine.virtualised { "A virtual machine with" } else { "A machine with" };
    page.say(&format!(
        "{kind} {} cores of {}, {} GiB of memory, {}, Linux {}. The load average before the run was \
         {:.1}; {:.1} % of the time during it was given to other guests of the host.",
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.load_before,
        machine.stolen_percent,
    ));
}

fn caveats(page: &mut Page, figures: &Figures) {
    page.heading("Caveats");
    let mut caveats = vec![
        format!(
            "Loopback has no distance. Between machines a lease costs at least one round trip more \
             than with one Redis, and of {} cores shared by all, the load takes its part.",
            figures.machine.cores,
        ),
        format!(
            "{CONNECTIONS} connections with much in flight are how a service is loaded that \
             leases for many; a program with one lease is nearer to *1 in flight* or *a \
             connection each*."
        ),
        "Spinning trades processor time for wake-ups. On a machine with as few cores as this one it \
         also takes time from the load generator, so that it can be slower where all cores have \
         work."
            .to_owned(),
        "The disk of a virtual machine decides what etcd and ZooKeeper reach with their defaults; on \
         tmpfs they wait for no disk, and would lose what they promise to keep."
            .to_owned(),
        "Versions are those that the distribution packages. They are not the newest, and later ones \
         may be faster or slower."
            .to_owned(),
        "The clients are our own, written for this comparison; with those of the usual libraries, the \
         libraries would have been compared."
            .to_owned(),
    ];
    let failures: Vec<String> = figures
        .failures()
        .map(|(row, count)| format!("{}, {}: {count}", row.side.title(), row.case))
        .collect();
    if !failures.is_empty() {
        caveats.push(format!(
            "Operations that failed over all rounds, not counted above: {}.",
            failures.join("; ")
        ));
    }
    if !figures.troubles.is_empty() {
        let troubles = figures.troubles.join("; ");
        caveats.push(format!("Turns that came to nothing and are missing: {troubles}."));
    }
    let has_polling = [Side::Redis, Side::Redlock]
        .iter()
        .any(|side| figures.row(*side, Case::new(What::Handovers, 16)).is_some());
    if has_polling {
        caveats.push(
            "Redis and Redlock could be polled more seldom or more often than every millisecond, for \
             less or more of their processors' time. Lock libraries poll more seldom, Redlock's \
             every 200 ms, and hand over as much less often."
                .to_owned(),
        );
    }
    page.list(&caveats);
}
