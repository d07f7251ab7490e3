"""Real cells for the tests. PAXOSLEASE_BINARY is the program of the nodes."""

import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "redis"))

from servers import Cell, free_port, until  # noqa: E402

import paxoslease  # noqa: E402
import paxoslease.aio  # noqa: E402

PATIENCE = 30


@pytest.fixture(scope="session")
def binary():
    default = REPOSITORY / "target" / "release" / "paxoslease"
    return str(Path(os.environ.get("PAXOSLEASE_BINARY", default)).resolve())


@pytest.fixture(scope="session")
def cell(binary):
    with Cell(binary) as cell:
        yield cell


@pytest.fixture
def own_cell(binary):
    """A cell for a test that kills nodes."""
    with Cell(binary) as cell:
        yield cell


@pytest.fixture(scope="session")
def endpoints(cell):
    return ",".join(cell.endpoints)


@pytest.fixture
def client(endpoints):
    with paxoslease.Client(endpoints) as client:
        yield client


@pytest.fixture
async def aclient(endpoints):
    async with paxoslease.aio.Client(endpoints) as client:
        yield client


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"test/{uuid.uuid4()}"


class Script:
    """A Python program in a process of its own. It has `client`, `name` and `say`."""

    HEAD = """
        import sys, paxoslease
        client = paxoslease.Client(sys.argv[1])
        name = sys.argv[2]
        def say(*words):
            # One write, because several threads may speak.
            sys.stdout.write(" ".join(map(str, words)) + "\\n")
            sys.stdout.flush()
    """

    def __init__(self, endpoints, name, text):
        program = textwrap.dedent(self.HEAD) + textwrap.dedent(text)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, endpoints, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def hear(self):
        """The next line that it says."""
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.rstrip("\n")

    def go(self):
        """Lets it pass `input()`."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """Waits for its end. The exit code, and what it said to the end on stdout and stderr."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, errors


@pytest.fixture
def script(endpoints, name):
    scripts = []

    def start(text, endpoints=endpoints):
        scripts.append(Script(endpoints, name, text))
        return scripts[-1]

    yield start
    for each in scripts:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture(scope="session")
def secure(binary, tmp_path_factory):
    """One node with TLS and tokens: its endpoint, and the folder with `ca.pem` and `token`."""
    folder = tmp_path_factory.mktemp("secure")
    run = lambda *words: subprocess.run([binary, *words], cwd=folder, check=True, capture_output=True)  # noqa: E731
    run("certs", "--cell", "secure", "--nodes", "1", "--client", "worker")
    made = run("token", "--out", "token", "--names", "jobs/*").stdout.decode()
    access = made[made.index("[[access]]") :]
    clients, peers, http = (f"127.0.0.1:{free_port()}" for _ in range(3))
    config = f"""
        cell = "secure"
        node = 1
        data_dir = "data"
        [peers]
        1 = "{peers}"
        [listen]
        peers = "{peers}"
        clients = "{clients}"
        http = "{http}"
        [tls]
        cert = "certs/node-1.pem"
        key = "certs/node-1-key.pem"
        ca = "certs/ca.pem"
        clients = "server"
    """
    (folder / "node.toml").write_text(textwrap.dedent(config) + access)
    node = subprocess.Popen(
        [binary, "serve", "--config", "node.toml", "--new-cell"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("w"),
    )
    try:
        client = paxoslease.Client(
            clients,
            ca=folder / "certs" / "ca.pem",
            token=(folder / "token").read_text().strip(),
        )

        def is_ready():
            assert node.poll() is None, (folder / "log").read_text()
            try:
                client.acquire("jobs/ready", 1).release()
            except paxoslease.Unavailable:
                return False
            return True

        until(is_ready)
        client.close()
        yield clients, folder
    finally:
        node.terminate()
        node.wait(timeout=PATIENCE)
