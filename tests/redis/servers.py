"""Real servers on loopback, a cell of three processes and Redis, and what benchmarks need.

Each is a context manager that ends what it started, by process id.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path

PATIENCE = 30.0

BUSY_MAX = 0.1
"""The share of the processor time of other programs up to which a machine is quiet."""


def until(condition, patience=PATIENCE):
    """Polls until `condition()` is true and returns its value. Fails after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience} s: {condition}")
        time.sleep(0.01)


def free_port():
    """A free port. The side that ends a connection keeps it in TIME_WAIT for a minute. During that
    time the system gives the port only to a process that asks for it by number."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
        return listener.getsockname()[1]


class Cell:
    """Three nodes, each a process of its own, as `paxoslease dev --processes` starts them."""

    def __init__(self, binary, *options):
        command = [binary, "dev", "--processes", "--json", "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError(f"{command} did not start: {errors.decode()}")
        self.nodes = json.loads(line)["nodes"]
        self.endpoints = [node["listen"]["clients"] for node in self.nodes]

    def kill(self, place):
        """Ends a node as a power failure does. Places count from 0."""
        os.kill(self.nodes[place]["pid"], signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


class Redis:
    """One Redis without persistence, which is the fastest that it can be."""

    def __init__(self):
        port = free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port)]
        command += ["--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.endpoints = [f"127.0.0.1:{port}"]
        until(self.listens)

    def listens(self):
        host, port = self.endpoints[0].split(":")
        with socket.socket() as client:
            return client.connect_ex((host, int(port))) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)


def busy_share(span=0.5):
    """The share of the processor time that other programs use while this one sleeps."""
    before = ticks()
    time.sleep(span)
    used, total = (later - earlier for later, earlier in zip(ticks(), before))
    return used / max(total, 1)


def ticks():
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def is_quiet(patience):
    """Waits until the machine is quiet, and says whether it became so in time."""
    deadline = time.monotonic() + patience
    while busy_share() > BUSY_MAX:
        if time.monotonic() > deadline:
            return False
    return True


def spread(points, place, form):
    """The median of one figure of all points, with the lowest and the highest."""
    values = [point[place] for point in points]
    shown = [form.format(value) for value in (statistics.median(values), min(values), max(values))]
    return "{} ({} to {})".format(*shown)
