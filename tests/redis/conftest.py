"""The servers under test.

REDIS_ENDPOINTS is a list of `host:port`, separated by commas: the nodes of a cell, or one Redis.
PAXOSLEASE_BINARY is the program whose nodes may be killed. A run against Redis has none.
"""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from clients import LIBRARIES
from servers import Cell


@pytest.fixture(scope="session")
def endpoints():
    """Three addresses. Those of one Redis are the same."""
    given = os.environ["REDIS_ENDPOINTS"].split(",")
    return (given * 3)[:3]


@pytest.fixture(scope="session")
def binary():
    if path := os.environ.get("PAXOSLEASE_BINARY"):
        return path
    pytest.skip("Redis has no nodes to kill")


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


@pytest.fixture
def name():
    """A lock that no other test uses."""
    return f"lock-{uuid.uuid4()}"


@pytest.fixture
def client(library, endpoints, name):
    """Makes clients of the lock, each connected to another node."""
    clients = []

    def connect(ttl=30, node=None):
        endpoint = endpoints[len(clients) % 3 if node is None else node]
        clients.append(library(endpoint, name, ttl))
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


@pytest.fixture
def remaining(library, endpoints, name):
    """The rest of the ttl in milliseconds, as Redis tells it."""
    host, port = endpoints[0].split(":")
    with redis.Redis(host, int(port)) as observer:
        yield lambda: observer.pttl(library.key.format(name))


@pytest.fixture
def background():
    with ThreadPoolExecutor() as executor:
        yield executor.submit
