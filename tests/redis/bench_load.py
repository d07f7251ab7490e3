"""A load of acquire and release with the lock of redis-py: CLIENTS processes, each with a
connection and a name of its own, for SECONDS after a warm-up. Prints the latencies in microseconds
as a list in JSON.
"""

import json
import multiprocessing
import os
import time
import uuid

import redis

WARMUP = 0.3


def load(barrier, results):
    host, port = os.environ["ENDPOINT"].split(":")
    client = redis.Redis(host, int(port))
    lock = client.lock(f"bench-{uuid.uuid4()}", timeout=10)
    client.ping()
    barrier.wait()
    begin = time.perf_counter() + WARMUP
    end = begin + float(os.environ["SECONDS"])
    latencies = []
    while (started := time.perf_counter()) < end:
        assert lock.acquire(blocking=False)
        lock.release()
        ended = time.perf_counter()
        if begin <= started and ended <= end:
            latencies.append(round((ended - started) * 1e6))
    results.put(latencies)


def main():
    multiprocessing.set_start_method("fork")
    clients = int(os.environ["CLIENTS"])
    barrier, results = multiprocessing.Barrier(clients), multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=load, args=(barrier, results)) for _ in range(clients)
    ]
    for process in processes:
        process.start()
    latencies = sum((results.get(timeout=60) for _ in processes), [])
    for process in processes:
        process.join()
    print(json.dumps(latencies))


if __name__ == "__main__":
    main()
