"""What is written is true: examples in docstrings and documents run, and Python has what Rust has."""

import asyncio
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

import paxoslease
from paxoslease import aio

RUST = [
    *(REPOSITORY / "crates" / "paxoslease-client" / "src").glob("*.rs"),
    *(REPOSITORY / "crates" / "paxoslease-holder" / "src").glob("*.rs"),
]

WHERE = {
    "Client": {
        "builder": "Client",
        "new": "Client",
        "from_env": "Client",
        "acquire": "Client.acquire",
        "try_acquire": "Client.acquire(blocking)",
        "renew": "Client.renew",
        "keep": "Client.keep",
        "release": "Client.release",
        "force_release": "Client.release(force)",
        "get": "Client.get",
        "list": "Client.list",
        "watch": "Client.watch",
        "status": "Client.status",
        "status_of": "Client.status(endpoint)",
        # For administrators, who have the command line.
        "members": None,
        "member_status": None,
        "endpoints": "Client.endpoints",
        "default_holder": "Client.default_holder",
        "shutdown": "Client.close",
    },
    "Builder": {
        "endpoints": "Client(endpoints)",
        "request_timeout": "Client(request_timeout)",
        "connect_timeout": "Client(connect_timeout)",
        "tls": "Client(ca)",
        "token": "Client(token)",
        "token_in_clear": "Client(token_in_clear)",
        "name": "Client(name)",
        "build": "Client",
    },
    "Tls": {
        "from_ca_pem": "Client(ca)",
        "from_ca_file": "Client(ca)",
        "with_identity_pem": "Client(cert)",
        "with_identity_files": "Client(key)",
        "with_server_name": "Client(server_name)",
        # For programs that use rustls themselves.
        "connection": None,
        "explain": None,
    },
    "Acquire": {
        # For transports.
        "new": None,
        "ttl": "Client.acquire(ttl)",
        "wait": "Client.acquire(timeout)",
        "holder": "Client.acquire(holder)",
        "permits": "Client.acquire(permits)",
        "detached": "Client.acquire_detached",
        "blocking": "Client.acquire",
    },
    "Detached": {"blocking": "Client.acquire_detached"},
    "LeaseGuard": {
        "name": "Lease.name",
        "holder": "Lease.holder",
        "fence": "Lease.fence",
        "ttl": "Lease.ttl",
        "view": "Lease.lost",
        "is_held": "Lease.is_held",
        "remaining": "Lease.remaining",
        "state": "Lease.state",
        "renewals": "Lease.renewals",
        "changed": "Lease.changed",
        "lost": "LostEvent.wait",
        # A thread cannot be cancelled, a task can.
        "run": {"aio": "Lease.run"},
        "release": "Lease.release",
    },
    "LeaseView": {
        "is_held": "Lease.is_held",
        "remaining": "Lease.remaining",
        "state": "Lease.state",
        "renewals": "Lease.renewals",
        "changed_since": "Lease.changed",
        "end": "LostEvent.is_set",
        "ended": "LostEvent.wait",
    },
    "Grant": {
        # For transports.
        "new": None,
        "name": "Grant.name",
        "fence": "Grant.fence",
        "ttl": "Grant.ttl",
        "waited": "Grant.waited",
        "is_held": "Grant.is_held",
        "remaining": "Grant.remaining",
    },
    "Election": {
        "new": "Client.elect",
        "holder": "Client.elect(holder)",
        "ttl": "Client.elect(ttl)",
        "campaign": "Election.campaign",
        "leader": "Election.leader",
        "observe": "Election.observe",
    },
    "Observer": {"next": "Observer.next"},
    "Watch": {"next": "Watch.next"},
    "List": {"page_len": "Client.scan(page_len)", "next": "Scan.next", "all": "Client.list"},
}
"""Where Python has each public method of the Rust client. None with a reason if it needs none."""


def rust_methods():
    """The public methods of each type, without those that block: Python has two modules instead."""
    methods = {}
    for file in RUST:
        for kind, body in re.findall(r"^impl(?:<[^>]*>)? (\w+)(?:<[^>]*>)? \{\n(.*?)^\}", file.read_text(), re.M | re.S):
            found = re.findall(r"^    pub (?:const )?(?:async )?fn (\w+)", body, re.M)
            names = {name.removesuffix("_blocking") for name in found}
            methods.setdefault(kind, set()).update(names)
    return methods


@pytest.mark.parametrize("kind", WHERE)
def test_python_can_do_what_rust_can(kind):
    assert set(WHERE[kind]) == rust_methods()[kind]
    for where in WHERE[kind].values():
        places = where if isinstance(where, dict) else {"sync": where, "aio": where}
        for module, path in places.items():
            if path is not None:
                assert exists({"sync": paxoslease, "aio": aio}[module], path), (module, path)


def exists(module, path):
    path, _, parameter = path.rstrip(")").partition("(")
    thing = module if path.split(".")[0] != "Grant" else paxoslease
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing is not None and (not parameter or parameter in inspect.signature(thing).parameters)


def test_every_public_type_of_rust_is_compared():
    text = (REPOSITORY / "crates" / "paxoslease-client" / "src" / "lib.rs").read_text()
    exported = set(re.findall(r"\w+", " ".join(re.findall(r"^pub use [^;]*;", text, re.M))))
    with_methods = {kind for kind, methods in rust_methods().items() if methods}
    # They are what errors and reports say, and Python shows them as texts and dictionaries.
    data = {"AskError", "Limit", "NodeStatus", "Quarantine", "Status"}
    # For administrators, as `Client.members`.
    data |= {"Membership", "MembersChange"}
    assert (exported & with_methods) - data == set(WHERE)


def test_both_interfaces_have_the_same_parts():
    for kind in ("Client", "Lease", "Lock", "Election", "Watch", "Observer", "Scan", "LostEvent"):
        parts = [
            {part.replace("__a", "__") for part in dir(getattr(module, kind)) if part not in dir(object)}
            for module in (paxoslease, aio)
        ]
        assert parts[0] ^ parts[1] <= {"run", "__class_getitem__"}, kind


@pytest.mark.parametrize("module", [paxoslease, aio], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module, endpoints, client):
    names = {"endpoints": endpoints, "client": client, "asyncio": asyncio, "Client": module.Client}
    classes = [thing for name in module.__all__ if isinstance(thing := getattr(module, name), type)]
    # Not into the module: it contains what it imports. Private modules define the classes, so the
    # module of a method is not compared.
    finders = [(doctest.DocTestFinder(recurse=False), module)]
    finders += [(doctest.DocTestFinder(), each) for each in classes]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for finder, thing in finders:
        for test in finder.find(thing, thing.__name__, module=False, extraglobs=names):
            runner.run(test)
    assert runner.tries and not runner.failures


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_programs_in_documents_run(page, cell, tmp_path, monkeypatch):
    """Each block is a program. Addresses of nodes become those of the cell."""
    monkeypatch.setenv("PAXOSLEASE_ENDPOINTS", ",".join(cell.endpoints))
    blocks = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / page).read_text(), re.M | re.S)
    assert blocks
    for number, block in enumerate(blocks):
        for place, endpoint in enumerate(cell.endpoints):
            block = block.replace(f"10.0.0.{place + 1}:7400", endpoint)
        if "ca=" in block:  # It needs certificates.
            compile(block, page, "exec")
            continue
        program = tmp_path / f"{number}.py"
        program.write_text(block)
        done = subprocess.run([sys.executable, program], timeout=60, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_package_needs_no_newer_python_than_it_says():
    folder = REPOSITORY / "python" / "paxoslease"
    done = subprocess.run(
        [Path(sys.executable).with_name("vermin"), "--target=3.9-", "--no-tips", folder],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
