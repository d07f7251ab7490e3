"""A plugin of pytest: connections to the usual port of Redis go to the server under test, whose port
is in REDIS_PORT, because many suites have no option for it. Known exceptions must fail.
"""

import os
import socket

import pytest

USUAL_PORT = 6379


def redirected(connect):
    def connect_to(self, address):
        if isinstance(address, tuple) and address[1] == USUAL_PORT:
            address = ("127.0.0.1", int(os.environ["REDIS_PORT"]))
        return connect(self, address)

    return connect_to


socket.socket.connect = redirected(socket.socket.connect)
socket.socket.connect_ex = redirected(socket.socket.connect_ex)


def pytest_collection_modifyitems(items):
    with open(os.environ["EXCEPTIONS"]) as file:
        lines = [line.split("|") for line in file if line.strip() and not line.startswith("#")]
    rows = [[cell.strip() for cell in line] for line in lines]
    reasons = {test: reason for suite, test, reason in rows if suite == os.environ["SUITE"]}
    # Against Redis, only the exceptions that say so fail.
    if os.environ.get("PAXOSLEASE_BINARY") is None:
        reasons = {test: why for test, why in reasons.items() if "on Redis as well" in why}
    for item in items:
        test = item.nodeid.split("/")[-1]
        if reason := reasons.get(test) or reasons.get(test.split("[")[0]):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
