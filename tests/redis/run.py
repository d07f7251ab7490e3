#!/usr/bin/env python3
"""Runs unmodified Redis lock libraries, and their own test suites, against a real cell.

Installs the libraries under target/redis first, unless they are there. Every command is shown, its
output goes to a file, and a failure shows the end of it.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

# The repository stays as it is.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

from servers import Cell, Redis

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "target" / "redis"
VENV = TARGET / "venv"
PYTHON = VENV / "bin" / "python"
NODE = TARGET / "node"
SOURCES = TARGET / "sources"
LOGS = TARGET / "logs"

PATIENCE = 600
"""No step takes as many seconds, except the installation on a slow network."""

SUMMARY = re.compile(r"^.*\d+ pass(?:ed|ing).*$|^. (?:pass|fail) \d+$", re.MULTILINE)
"""The lines of pytest, mocha and Node that say how many tests passed."""


class Step:
    def __init__(self, name, *command, folder=HERE, **environment):
        self.name = name
        self.command = [str(word) for word in command]
        self.folder = folder
        self.environment = {key: str(value) for key, value in environment.items()}

    def run(self, environment):
        """Whether it succeeds."""
        environment = environment | self.environment
        print(f"$ {self.shown(environment)}", flush=True)
        log = LOGS / f"{self.name}.log"
        started_at = time.monotonic()
        with open(log, "wb") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(
                self.command, cwd=self.folder, env=os.environ | environment, **streams
            )
            try:
                succeeded = process.wait(timeout=PATIENCE) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                file.write(f"\nkilled after {PATIENCE} s\n".encode())
                succeeded = False
        took = time.monotonic() - started_at
        text = log.read_text(errors="replace")
        verdict = "ok  " if succeeded else "FAIL"
        summary = ", ".join(line.strip("= \t") for line in SUMMARY.findall(text)[-2:])
        print(f"{verdict} {self.name}, {took:.1f} s: {summary}", flush=True)
        if not succeeded:
            print("\n".join(text.splitlines()[-80:]))
            print(f"The whole output is in {log}", flush=True)
        return succeeded

    def shown(self, environment):
        """As one would type it in a shell, except that it needs the servers."""
        settings = [f"{key}={shlex.quote(value)}" for key, value in environment.items()]
        folder = [] if self.folder == HERE else ["cd", str(self.folder), "&&"]
        return " ".join(folder + settings + [shlex.join(self.command)])


def pytest(name, *args, folder=HERE, **environment):
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "60", "-W", "ignore", "--tb", "short"]
    return Step(name, PYTHON, "-m", "pytest", *options, *args, folder=folder, **environment)


def own():
    """Our tests of every library."""
    # Workers wait most of the time. The tests with a killed node share one cell, so one worker.
    workers = ["-p", "no:asyncio", "-n", "4", "--dist", "loadgroup"]
    cargo = ["cargo", "test", "--manifest-path", HERE / "rslock" / "Cargo.toml", "--test", "locks"]
    return [
        pytest("python", *workers, "test_clients.py"),
        Step("node", "node", "--test", HERE / "clients.test.mjs", NODE_LIBRARIES=NODE),
        Step("rslock", *cargo, "--locked", "--target-dir", TARGET / "rslock"),
    ]


def suites():
    """The libraries' own tests, of which some need commands that are for tests only."""
    plugins = {"PYTHONPATH": HERE / "suites", "EXCEPTIONS": HERE / "exceptions.txt"}

    def suite(name, distribution, *args, **environment):
        (folder,) = SOURCES.glob(f"{distribution}-[0-9]*")
        environment = plugins | {"SUITE": name} | environment
        return pytest(name, "-p", "redirect", "-o", "addopts=", *args, folder=folder, **environment)

    def mocha(name):
        program = NODE / "node_modules" / ".bin" / "mocha"
        redirect = HERE / "suites" / "redirect.cjs"
        return Step(name, program, "--exit", "--require", redirect, folder=NODE / "suites" / name)

    def blocking(step, tests, *workers):
        # A test that starts 125 processes at once would delay the start of servers of other tests.
        path = f"{HERE / 'suites' / 'bin'}:{os.environ['PATH']}"
        options = ["-p", "no:asyncio", *workers, "-k", tests, "tests/test_redis_lock.py"]
        environment = {"SUITE": "python-redis-lock", "PATH": path, "REDIS_LOCK_TEST_TIMEOUT": 4}
        return suite(step, "python_redis_lock", *options, **environment)

    # The other parameters are of the client: decoded replies, and green threads.
    plain = "not True and not gevent and not eventlet"
    pottery = ["-p", "pottery_fixtures", "-o", "asyncio_mode=auto"]
    locks = ["tests/test_redlock.py", "tests/test_aioredlock.py"]
    return [
        suite("redis-py", "redis", "tests/test_lock.py", "tests/test_asyncio/test_lock.py"),
        suite("redlock-py", "redlock-py", "-p", "no:asyncio", "tests"),
        blocking("python-redis-lock", f"{plain} and not overlap", "-n", "4"),
        blocking("python-redis-lock-contended", "overlap"),
        suite("pottery", "pottery", *pottery, *locks),
        suite("walrus", "walrus", "-p", "no:asyncio", "walrus/tests/lock.py"),
        mocha("redlock"),
        mocha("redis-lock"),
    ]


def install():
    LOGS.mkdir(parents=True, exist_ok=True)
    requirements = HERE / "requirements.txt"
    manifests = [HERE / "package.json", HERE / "package-lock.json"]
    if not same(VENV, [requirements]):
        shutil.rmtree(VENV, ignore_errors=True)
        shutil.rmtree(SOURCES, ignore_errors=True)
        must("venv", sys.executable, "-m", "venv", VENV)
        must("pip", PYTHON, "-m", "pip", "install", "--requirement", requirements)
        sources(requirements)
        shutil.copy(requirements, VENV)
    if not same(NODE, manifests):
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir()
        for manifest in manifests:
            shutil.copy(manifest, NODE)
        # Some packages ask for one driver as a peer, and there are three versions of it.
        must("npm", "npm", "ci", "--legacy-peer-deps", "--no-audit", "--no-fund", folder=NODE)
        unpack_mocha("redlock", "redlock-4", redis="node-redis-3", ioredis="ioredis-4")
        unpack_mocha("redis-lock", "redis-lock", redis="node-redis-4")


def same(folder, files):
    copies = [(folder / file.name, file) for file in files]
    return all(copy.exists() and copy.read_bytes() == file.read_bytes() for copy, file in copies)


def must(name, *command, folder=HERE):
    if not Step(name, *command, folder=folder).run({}):
        sys.exit(1)


def sources(requirements):
    """Source distributions have the tests; wheels have not."""
    names = ("redis==", "redlock-py==", "python-redis-lock==", "pottery==", "walrus==")
    pins = [line for line in requirements.read_text().split() if line.startswith(names)]
    folder = TARGET / "downloads"
    options = ["--no-deps", "--no-binary", ":all:", "--dest", folder]
    must("pip-download", PYTHON, "-m", "pip", "download", *options, *pins)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(SOURCES, filter="data")


def unpack_mocha(name, package, **drivers):
    """The package with its tests, and the drivers that these tests ask for."""
    modules = NODE / "node_modules"
    folder = NODE / "suites" / name
    shutil.copytree(modules / package, folder)
    (folder / "node_modules").mkdir(exist_ok=True)
    others = {other: other for other in ("bluebird", "chai", "should")}
    for wanted, installed in (others | drivers).items():
        (folder / "node_modules" / wanted).symlink_to(modules / installed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/debug/paxoslease", help="the program to test")
    parser.add_argument("--redis", action="store_true", help="test the tests, against Redis")
    parser.add_argument("--only", metavar="TEXT", default="", help="steps whose name has this")
    args = parser.parse_args()
    install()
    binary = str(Path(args.binary).resolve())
    failed = []
    for steps, options in ((own(), []), (suites(), ["--redis-testing"])):
        steps = [step for step in steps if args.only in step.name]
        if not steps:
            continue
        with Redis() if args.redis else Cell(binary, *options) as server:
            environment = {"REDIS_ENDPOINTS": ",".join(server.endpoints)}
            environment["REDIS_PORT"] = server.endpoints[0].split(":")[1]
            if not args.redis:
                environment["PAXOSLEASE_BINARY"] = binary
            failed += [step.name for step in steps if not step.run(environment)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
