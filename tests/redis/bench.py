#!/usr/bin/env python3
"""Measures the same client library on one Redis and on a cell of three, in turns.

Writes the table into docs/redis.md, between its markers. Only differences within one run count.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from run import HERE, NODE, PYTHON, install
from servers import BUSY_MAX, Cell, Redis, busy_share, is_quiet, spread

PAGE = HERE.parent.parent / "docs" / "redis.md"
BEGIN, END = "<!-- figures of clients -->", "<!-- end of the figures of clients -->"
CLIENTS = (1, 16, 64)
PROGRAMS = {
    "redis-py `Lock`, a process for each client": [PYTHON, HERE / "bench_load.py"],
    "ioredis with `redlock` 5, all clients in one process": ["node", HERE / "bench.mjs"],
}


def measure(program, endpoint, clients, seconds):
    """Pairs per second, and the median latency of a pair in milliseconds."""
    environment = {"ENDPOINT": endpoint, "CLIENTS": str(clients), "SECONDS": str(seconds)}
    environment |= {"NODE_LIBRARIES": str(NODE), "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.run(
        [str(word) for word in program],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60 + 10 * seconds,
    )
    latencies = json.loads(output.stdout)
    return len(latencies) / seconds, statistics.median(latencies) / 1000


def rounds(count, seconds, patience, redis, cell):
    """The figures of every point: program, number of clients, server. And how many points began or
    ended while other programs kept the machine busy.
    """
    figures, disturbed = {}, 0
    for turn in range(count):
        for title, program in PROGRAMS.items():
            for clients in CLIENTS:
                servers = [("Redis", redis), ("cell", cell)]
                for name, server in servers if turn % 2 == 0 else reversed(servers):
                    quiet_before = is_quiet(patience)
                    point = measure(program, server.endpoints[0], clients, seconds)
                    quiet = quiet_before and busy_share() <= BUSY_MAX
                    disturbed += not quiet
                    figures.setdefault((title, clients, name), []).append(point)
                    shown = f"{name} {point}" + ("" if quiet else " (disturbed)")
                    print(f"{turn + 1}/{count} {title}, {clients}: {shown}", flush=True)
    return figures, disturbed


def table(figures, disturbed, count, seconds):
    head = ["library", "clients", "Redis, pairs/s", "cell, pairs/s", "cell / Redis"]
    head += ["Redis, p50 ms", "cell, p50 ms"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---:|---:|"]
    for title in PROGRAMS:
        for clients in CLIENTS:
            redis, cell = (figures[title, clients, name] for name in ("Redis", "cell"))
            ratios = [ours[0] / theirs[0] for ours, theirs in zip(cell, redis)]
            cells = [title, str(clients), spread(redis, 0, "{:,.0f}"), spread(cell, 0, "{:,.0f}")]
            cells += [f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
            cells += [spread(redis, 1, "{:.2f}"), spread(cell, 1, "{:.2f}")]
            lines.append(f"| {' | '.join(cells)} |")
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    machine = f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"
    redis_version = version.split("v=")[1].split()[0]
    points = sum(map(len, figures.values()))
    lines += [
        "",
        "A pair is an acquire and a release of a free lock. Each client has a connection and a name",
        f"of its own, all to one address. Medians of {count} rounds of {seconds:g} s, in turns, with",
        f"the lowest and the highest in brackets. {machine}, Redis {redis_version} without",
        "persistence, a cell of three processes with the defaults of `dev`. Clients and servers share",
        f"the cores. Other programs disturbed {disturbed} of {points} points.",
        "`cargo xtask bench clients` writes this table.",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/release/paxoslease")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for quiet")
    parser.add_argument("--quick", action="store_true", help="one short round, nothing is written")
    args = parser.parse_args()
    install()
    if args.quick:
        args.rounds, args.seconds = 1, 0.5
    with Redis() as redis, Cell(str(Path(args.binary).resolve())) as cell:
        figures, disturbed = rounds(args.rounds, args.seconds, args.patience, redis, cell)
    text = table(figures, disturbed, args.rounds, args.seconds)
    print(text)
    if not args.quick and PAGE.exists() and BEGIN in PAGE.read_text():
        before, rest = PAGE.read_text().split(BEGIN, 1)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
