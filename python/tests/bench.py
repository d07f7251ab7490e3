#!/usr/bin/env python3
"""Compares acquire and release of this package with those of redis-py's Lock on one Redis, in one
process and in turns.

Writes the table into docs/python.md, between its markers. Only differences within one run count.
"""

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "redis"))

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from servers import BUSY_MAX, Cell, Redis, busy_share, is_quiet, spread  # noqa: E402

import paxoslease  # noqa: E402
from paxoslease import aio  # noqa: E402

PAGE = REPOSITORY / "docs" / "python.md"
BEGIN, END = "<!-- figures of python -->", "<!-- end of the figures of python -->"
TTL = 15


def threads(count, seconds, lock):
    """The latencies of pairs, of threads with a name each."""
    deadline = time.perf_counter() + seconds
    latencies = []

    def work(number):
        name, mine = f"bench/{number}", []
        while (started_at := time.perf_counter()) < deadline:
            with lock(name):
                pass
            mine.append(time.perf_counter() - started_at)
        latencies.extend(mine)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return latencies


def tasks(count, seconds, lock):
    """The same for tasks of one event loop. `lock` gets a stack that closes its client."""

    async def work(lock, name, deadline, latencies):
        while (started_at := time.perf_counter()) < deadline:
            async with lock(name):
                pass
            latencies.append(time.perf_counter() - started_at)

    async def main():
        latencies = []
        async with lock() as client:
            deadline = time.perf_counter() + seconds
            names = [f"bench/{number}" for number in range(count)]
            await asyncio.gather(*(work(client, name, deadline, latencies) for name in names))
        return latencies

    return asyncio.run(main())


class AsyncCell:
    def __init__(self, endpoints):
        self.client = aio.Client(endpoints)

    async def __aenter__(self):
        return lambda name: self.client.lock(name, ttl=TTL)

    async def __aexit__(self, *_):
        await self.client.close()


class AsyncRedis:
    def __init__(self, port):
        self.client = redis.asyncio.Redis(port=port)

    async def __aenter__(self):
        return lambda name: self.client.lock(name, timeout=TTL)

    async def __aexit__(self, *_):
        await self.client.aclose()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=REPOSITORY / "target" / "release" / "paxoslease")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for quiet")
    parser.add_argument("--quick", action="store_true", help="one short round, nothing is written")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds, args.patience = 1, 0.5, 1
    with Cell(str(Path(args.binary).resolve())) as cell, Redis() as server:
        endpoints = ",".join(cell.endpoints)
        port = int(server.endpoints[0].split(":")[1])
        client, other = paxoslease.Client(endpoints), redis.Redis(port=port)
        ways = {
            "a thread": (threads, 1),
            "16 threads": (threads, 16),
            "64 tasks of asyncio": (tasks, 64),
        }
        locks = {
            threads: {
                "paxoslease": lambda name: client.lock(name, ttl=TTL),
                "redis-py": lambda name: other.lock(name, timeout=TTL),
            },
            tasks: {
                "paxoslease": lambda: AsyncCell(endpoints),
                "redis-py": lambda: AsyncRedis(port),
            },
        }
        figures, disturbed = {}, 0
        for turn in range(args.rounds):
            for way, (run, count) in ways.items():
                pair = list(locks[run].items())
                for name, lock in pair if turn % 2 == 0 else reversed(pair):
                    quiet = is_quiet(args.patience)
                    latencies = run(count, args.seconds, lock)
                    quiet = quiet and busy_share() <= BUSY_MAX
                    disturbed += not quiet
                    point = len(latencies) / args.seconds, statistics.median(latencies) * 1000
                    figures.setdefault((way, name), []).append(point)
                    print(f"{turn + 1}/{args.rounds} {way}, {name}: {point}", flush=True)
        client.close()
    text = table(figures, ways, disturbed, args)
    print(text)
    if not args.quick:
        before, rest = PAGE.read_text().split(BEGIN, 1)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def table(figures, ways, disturbed, args):
    head = ["in one process", "redis-py, pairs/s", "paxoslease, pairs/s", "ratio"]
    head += ["redis-py, p50 ms", "paxoslease, p50 ms"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---:|"]
    for way in ways:
        ours, theirs = figures[way, "paxoslease"], figures[way, "redis-py"]
        ratios = [mine[0] / other[0] for mine, other in zip(ours, theirs)]
        cells = [way, spread(theirs, 0, "{:,.0f}"), spread(ours, 0, "{:,.0f}")]
        cells += [f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
        cells += [spread(theirs, 1, "{:.2f}"), spread(ours, 1, "{:.2f}")]
        lines.append(f"| {' | '.join(cells)} |")
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    points = sum(map(len, figures.values()))
    lines += [
        "",
        "A pair is an acquire and a release of a free lock. redis-py's `Lock` uses one Redis without",
        "persistence or replicas; this package uses a cell of three processes with the defaults of",
        f"`dev`, and a quorum. Medians of {args.rounds} rounds of {args.seconds:g} s, in turns, with",
        f"the lowest and the highest in brackets. {os.cpu_count()} cores, which client and servers",
        f"share, Linux {platform.release().split('-')[0]}, CPython {platform.python_version()}, redis-py",
        f"{redis.__version__}, Redis {version.split('v=')[1].split()[0]}. Other programs disturbed",
        f"{disturbed} of {points} points. `cargo xtask bench python` writes this table.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
