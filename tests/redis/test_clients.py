"""What a lock must do, for every library. Each client of a lock is connected to another node."""

import threading

import pytest
import redlock

from clients import LIBRARIES, succeeds
from servers import Cell, until

ABSENT = -2
NO_EXPIRY = -1


def needs(operation):
    return pytest.mark.parametrize(
        "library",
        [library for library in LIBRARIES.values() if getattr(library, operation)],
        ids=[name for name, library in LIBRARIES.items() if getattr(library, operation)],
    )


def test_a_held_lock_refuses_other_clients(client, remaining):
    holder, second, third = client(), client(), client()
    assert holder.acquire()
    assert not second.acquire()
    assert not third.acquire()
    assert 0 < remaining() <= 30_000


@needs("release")
def test_only_the_holder_can_release(client, remaining):
    holder, other, third = client(), client(), client()
    assert holder.acquire()
    assert not other.release()
    assert not third.acquire()
    assert holder.release()
    assert remaining() == ABSENT
    assert third.acquire()
    assert not holder.release()
    assert not other.acquire()


@needs("remove")
def test_a_removed_lock_is_free(client, remaining):
    holder, other = client(), client()
    assert holder.acquire()
    other.remove()
    assert remaining() == ABSENT
    assert other.acquire()


@needs("extend")
def test_an_extended_lock_is_held_for_longer(client, remaining):
    holder, other = client(ttl=10), client()
    assert holder.acquire()
    assert remaining() <= 10_000
    assert holder.extend(50)
    assert 40_000 < remaining() <= 50_000
    assert not other.acquire()


@needs("extend")
def test_a_lock_of_another_client_cannot_be_extended(client, remaining):
    holder, other = client(ttl=2), client()
    assert holder.acquire()
    until(other.acquire)
    assert not holder.extend(50)
    assert remaining() <= 30_000


def test_a_lock_that_is_not_released_expires(client):
    holder, other = client(ttl=1), client()
    assert holder.acquire()
    assert not other.acquire()
    until(other.acquire)
    if holder.release:
        assert not holder.release()
    assert not holder.acquire()


@needs("wait")
def test_a_waiting_client_gets_the_lock_after_a_release(client, background):
    holder, other = client(), client()
    assert holder.acquire()
    waiting = background(other.wait)
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.3)
    assert holder.release()
    assert waiting.result()
    assert not holder.acquire()


@needs("wait")
def test_a_waiting_client_gets_the_lock_after_its_expiry(client, background):
    # On Redis, clients that block learn nothing of an expiry, and ask again after their own ttl.
    holder, other = client(ttl=1), client(ttl=2)
    assert holder.acquire()
    waiting = background(other.wait)
    assert waiting.result()
    assert not holder.acquire()


@needs("wait")
def test_contenders_hold_the_lock_one_at_a_time(client, background):
    inside = threading.Lock()
    turns = 4

    def contend(contender):
        for _ in range(turns):
            assert contender.wait()
            assert inside.acquire(blocking=False), "two clients hold the lock"
            inside.release()
            assert contender.release()
        return turns

    contenders = [background(contend, client()) for _ in range(3)]
    assert sum(contender.result() for contender in contenders) == 3 * turns


@needs("endless")
def test_a_lock_without_ttl_has_no_expiry(client, remaining):
    holder, other = client(ttl=None), client()
    assert holder.acquire()
    assert remaining() == NO_EXPIRY
    assert not other.acquire()
    (holder.release or holder.remove)()
    assert other.acquire()


def test_redlock_takes_one_cell_for_one_server(binary, endpoints, name):
    """With several nodes of a cell as its servers it gets no majority, and leaves nothing behind."""
    servers = [f"redis://{endpoint}" for endpoint in endpoints]
    assert not redlock.Redlock(servers, retry_count=1).lock(name, 30_000)
    assert redlock.Redlock(servers[:1], retry_count=1).lock(name, 30_000)


@pytest.fixture(scope="module")
def wounded(binary):
    """A cell of which one node was killed while each library held locks."""
    locks = {}
    with Cell(binary) as cell:
        for name, library in LIBRARIES.items():
            of_killed = library(cell.endpoints[0], f"{name}: of the killed node", 30)
            expiring = library(cell.endpoints[0], f"{name}: expiring", 3)
            of_other = library(cell.endpoints[1], f"{name}: of another node", 30)
            endless = library.endless and library(cell.endpoints[0], f"{name}: endless", None)
            locks[library] = [of_killed, expiring, of_other, endless]
            for lock in filter(None, locks[library]):
                lock.is_held = succeeds(lambda: lock.acquire() or 1 / 0, Exception)
        cell.kill(0)
        yield cell, locks
        for lock in sum(locks.values(), []):
            if lock:
                lock.close()


@pytest.fixture
def survivors(wounded, library):
    """Makes clients on the nodes that were not killed."""
    cell, locks = wounded
    clients = []

    def connect(lock, node):
        clients.append(library(cell.endpoints[node], lock.name, 30))
        return clients[-1]

    yield *locks[library], connect
    for client in clients:
        client.close()


@pytest.mark.xdist_group("killed")
def test_a_lock_outlives_the_node_that_granted_it(survivors):
    of_killed, expiring, of_other, endless, connect = survivors
    assert all(lock.is_held for lock in (of_killed, expiring, of_other, endless) if lock)
    for node in (1, 2):
        assert not connect(of_killed, node).acquire()
        assert not connect(of_other, node).acquire()
        if endless:
            assert not connect(endless, node).acquire()
    until(connect(expiring, 2).acquire)
    release = of_other.release or of_other.remove
    assert release() is not False
    assert connect(of_other, 2).acquire()
