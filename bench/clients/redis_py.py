"""A load of acquire and release with the lock of redis-py, in one process: CLIENTS at a time, each
with a name of its own, for SECONDS after a warm-up. A single client is synchronous, several are
tasks of asyncio. Prints the latencies of pairs and the processor time in microseconds as JSON.
"""

import asyncio
import json
import os
import platform
import time

import redis
import redis.asyncio

WARMUP = 0.3
TTL = 15
HOST, PORT = os.environ["ENDPOINT"].split(":")
CLIENTS = int(os.environ["CLIENTS"])
SECONDS = float(os.environ["SECONDS"])


def alone():
    client = redis.Redis(HOST, int(PORT))
    lock = client.lock("bench/0", timeout=TTL)

    def load(seconds):
        latencies, end = [], time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            assert lock.acquire(blocking=False)
            lock.release()
            latencies.append(round((time.perf_counter() - started) * 1e6))
        return latencies

    load(WARMUP)
    before = time.process_time()
    return load(SECONDS), time.process_time() - before


async def together():
    client = redis.asyncio.Redis(host=HOST, port=int(PORT))

    async def one(number, end, latencies):
        lock = client.lock(f"bench/{number}", timeout=TTL)
        while (started := time.perf_counter()) < end:
            assert await lock.acquire(blocking=False)
            await lock.release()
            latencies.append(round((time.perf_counter() - started) * 1e6))

    async def load(seconds):
        latencies, end = [], time.perf_counter() + seconds
        await asyncio.gather(*(one(number, end, latencies) for number in range(CLIENTS)))
        return latencies

    await load(WARMUP)
    before = time.process_time()
    latencies = await load(SECONDS)
    cpu = time.process_time() - before
    await client.aclose()
    return latencies, cpu


latencies_us, cpu = alone() if CLIENTS == 1 else asyncio.run(together())
version = f"redis-py {redis.__version__}, CPython {platform.python_version()}"
print(json.dumps({"version": version, "latencies_us": latencies_us, "cpu_us": cpu * 1e6}))
