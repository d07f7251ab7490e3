"""The blocking interface, in one process."""

import copy
import ctypes
import gc
import math
import pickle
import pydoc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from servers import until

import paxoslease
from paxoslease import Client, Held, InvalidArgument, LeaseLost, LeaseState


def test_a_lock_is_held_inside_its_block_only(client, name):
    with client.lock(name, ttl=15) as lease:
        assert lease.is_held() and lease.state is LeaseState.HELD
        assert 0 < lease.remaining() <= lease.ttl == 15
        seen = client.get(name)
        assert (seen.name, seen.holder, seen.fence) == (name, lease.holder, lease.fence)
        assert lease.holder == client.default_holder
    assert not lease.is_held() and lease.remaining() == 0
    assert client.get(name) is None


def test_a_second_holder_is_refused_or_waits(client, name):
    with client.lock(name, ttl=15, holder="first") as first:
        is_held = f'"{name}" is held by "first" .fence {first.fence}. for 1[45].* s more unless renewed'
        with pytest.raises(Held, match=is_held) as held:
            client.acquire(name, ttl=15, blocking=False)
        assert (held.value.name, held.value.holder.holder) == (name, "first")
        with pytest.raises(Held):
            client.acquire(name, ttl=15, timeout=timedelta(milliseconds=50))
        with ThreadPoolExecutor() as executor:
            second = executor.submit(client.acquire, name, 15)
            until(lambda: any(client.status(each)["waiters"] for each in client.endpoints))
            assert not second.done()
            first.release()
            assert second.result(timeout=30).fence > first.fence
            second.result().release()


def test_a_lease_ends_once(client, name):
    lease = client.acquire(name, ttl=15)
    assert not lease.lost.is_set() and not lease.lost.wait(0.01)
    lease.release()
    lease.release()
    assert not lease.lost.is_set(), "it was released"
    assert lease.state is LeaseState.RELEASED
    assert not lease.lost.wait()
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_lease_that_is_dropped_is_released_with_a_warning(client, name, recwarn):
    lease = client.acquire(name, ttl=15)
    with pytest.warns(ResourceWarning, match=f"unreleased <Lease '{name}'"):
        del lease
        gc.collect()
    with client.acquire(name, ttl=15, timeout=10) as lease:
        pass
    lost = client.acquire(name, ttl=1)
    client.release(name, lost.fence, force=True)
    assert lost.lost.wait(30)
    recwarn.clear()
    del lease, lost
    gc.collect()
    assert not recwarn.list, "nothing was forgotten"


def test_a_block_is_not_entered_with_a_lease_that_is_over(client, name):
    lease = client.acquire(name, ttl=15)
    lease.release()
    with pytest.raises(LeaseLost, match=name):
        with lease:
            pytest.fail("the block ran without a lease")


def test_a_lost_lease_is_noticed_by_all_means(client, name):
    told = threading.Event()
    with pytest.raises(LeaseLost, match=name) as error:
        with client.lock(name, ttl=15, on_lost=lambda lease: told.set()) as lease:
            # An operator's release is noticed with the next renewal.
            client.release(name, lease.fence, force=True)
            assert lease.lost.wait(30)
            assert lease.lost.is_set() and not lease.is_held() and lease.state is LeaseState.LOST
            assert told.wait(30)
    assert (error.value.name, error.value.fence) == (name, lease.fence)
    assert error.value.__context__ is None, "an assertion of the block would be there"


def test_an_error_of_the_block_is_the_context_of_a_lost_lease(client, name):
    with pytest.raises(LeaseLost) as error:
        with client.lock(name, ttl=1) as lease:
            client.release(name, lease.fence, force=True)
            assert lease.lost.wait(30)
            raise KeyError("of the block")
    assert isinstance(error.value.__context__, KeyError)


def test_an_exit_from_the_block_goes_on_although_the_lease_is_lost(client, name):
    with pytest.raises(SystemExit):
        with client.lock(name, ttl=1) as lease:
            client.release(name, lease.fence, force=True)
            assert lease.lost.wait(30)
            raise SystemExit(3)


def test_an_error_of_on_lost_is_logged_and_stops_no_other(client, name, caplog):
    told = threading.Event()

    def fail(lease):
        raise ValueError("mine")

    leases = [
        client.acquire(f"{name}/1", ttl=1, on_lost=fail),
        client.acquire(f"{name}/2", ttl=1, on_lost=lambda lease: told.set()),
    ]
    for lease in leases:
        client.release(lease.name, lease.fence, force=True)
        assert lease.lost.wait(30)
    assert told.wait(30)
    until(lambda: "on_lost of" in caplog.text and "mine" in caplog.text)


def test_a_lease_is_renewed_while_python_holds_the_interpreter_lock(client, name):
    with client.lock(name, ttl=0.5) as lease:
        before = lease.renewals
        # PyDLL keeps the interpreter lock during the call, for four times the ttl.
        ctypes.PyDLL(None).usleep(2_000_000)
        assert lease.is_held()
        assert lease.renewals >= before + 4
        assert client.get(name).fence == lease.fence


def test_a_change_of_a_lease_can_be_waited_for(client, name):
    with client.lock(name, ttl=0.3) as lease:
        assert lease.changed() is LeaseState.HELD and lease.renewals >= 1
    assert lease.changed() is LeaseState.LOST
    with client.lock(name, ttl=15) as lease:
        assert lease.changed(timeout=0.01) is LeaseState.HELD and lease.renewals == 0


def test_threads_share_a_client(client, name):
    inside, fences = [], []

    def work(_):
        for _ in range(20):
            with client.lock(name, ttl=15) as lease:
                assert not inside
                inside.append(lease)
                fences.append(lease.fence)
                inside.remove(lease)

    with ThreadPoolExecutor(16) as executor:
        list(executor.map(work, range(16)))
    assert len(fences) == 320 and fences == sorted(set(fences))


def test_a_lock_object_has_one_block_at_a_time(client, name):
    lock = client.lock(name, ttl=15, permits=2)
    with lock as first, ThreadPoolExecutor() as executor:
        with pytest.raises(RuntimeError, match="in use"):
            lock.__enter__()
        with pytest.raises(RuntimeError, match="in use"):
            executor.submit(lock.__enter__).result()
        with client.lock(name, ttl=15, permits=2) as second:
            assert {first.name, second.name} == {f"{name}#1", f"{name}#2"}
    with lock as again:
        assert again.fence > first.fence
    lock = client.lock(name, ttl=15)
    with ThreadPoolExecutor(1) as executor:
        lease = executor.submit(lock.__enter__).result()
        lock.__exit__(None, None, None)
        assert not lease.is_held(), "a framework may leave a block on another thread"
    with client.lock(name, ttl=15), pytest.raises(Held):
        client.lock(name, ttl=15, blocking=False).__enter__()
    with lock:
        pass


def test_a_loss_that_a_callback_saw_is_still_raised(client, name):
    seen = threading.Event()

    def swallow(lease):
        with pytest.raises(LeaseLost):
            lease.release()
        seen.set()

    with pytest.raises(LeaseLost) as error:
        with client.lock(name, ttl=1, on_lost=swallow) as lease:
            client.release(name, lease.fence, force=True)
            assert seen.wait(30)
    assert error.value.__context__ is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_blocks_or_exits_delays_no_other(client, name):
    blocked, told = threading.Event(), threading.Event()

    def leave(lease):
        raise SystemExit(3)

    callbacks = [lambda lease: blocked.wait(60), leave, lambda lease: told.set()]
    for number, on_lost in enumerate(callbacks):
        lease = client.acquire(f"{name}/{number}", ttl=1, on_lost=on_lost)
        client.release(lease.name, lease.fence, force=True)
        assert lease.lost.wait(30)
    assert told.wait(30)
    blocked.set()
    with pytest.raises(TypeError, match="on_lost"):
        client.acquire(name, ttl=1, on_lost="text")


def test_what_would_run_after_the_release_cannot_be_decorated(client, name):
    async def coroutine():
        pass

    def generator():
        yield

    async def generating():
        yield

    for function in (coroutine, generator, generating):
        with pytest.raises(TypeError):
            client.exclusive(name, ttl=15)(function)


def test_a_lease_or_client_is_not_copied(client, name):
    with client.lock(name, ttl=15) as lease:
        for thing in (lease, client):
            for way in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match="belongs to its process"):
                    way(thing)
    held = pickle.loads(pickle.dumps(made_held(client, name)))
    assert (held.name, held.holder.holder) == (name, "me")


def made_held(client, name):
    with client.lock(name, ttl=15, holder="me"), pytest.raises(Held) as held:
        client.acquire(name, ttl=15, blocking=False)
    return held.value


def test_a_decorated_function_runs_with_the_lock(client, name):
    @client.exclusive(name, ttl=15, blocking=False, pass_lease=True)
    def double(lease, number):
        """Doubles."""
        with pytest.raises(Held):
            double(number)
        assert client.get(name).fence == lease.fence
        return 2 * number

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Doubles.")
    assert client.get(name) is None


def test_a_semaphore_has_as_many_holders_as_permits(client, name):
    leases = [client.acquire(name, ttl=15, permits=2) for _ in range(2)]
    assert {lease.name for lease in leases} == {f"{name}#1", f"{name}#2"}
    with pytest.raises(Held):
        client.acquire(name, ttl=15, permits=2, blocking=False)
    leases[0].release()
    client.acquire(name, ttl=15, permits=2, timeout=10)


def test_a_lease_without_a_guard_is_renewed_and_released_by_its_fence(client, name):
    grant = client.acquire_detached(name, ttl=15)
    assert grant.is_held() and 0 < grant.remaining() <= 15 and grant.waited >= 0
    assert client.renew(name, grant.fence, ttl=20).ttl == 20
    client.keep(name, grant.fence, timedelta(hours=1))
    assert client.get(name).remaining > 3000
    client.release(name, grant.fence)
    with pytest.raises(LeaseLost):
        client.renew(name, grant.fence, ttl=15)
    with pytest.raises(LeaseLost):
        client.release(name, grant.fence)


def test_a_durable_lease_needs_no_ttl(client, name):
    with client.lock(name, durable=True) as lease:
        assert lease.remaining() == math.inf and client.get(name).remaining == math.inf
    assert client.get(name) is None
    grant = client.acquire_detached(name, ttl=timedelta(days=1), durable=True)
    assert client.keep(grant.name, grant.fence).fence == grant.fence
    assert client.get(name).remaining == math.inf
    client.release(name, grant.fence, durable=True)
    with pytest.raises(TypeError):
        client.acquire(name, None)


def test_leases_are_listed_and_watched(client, name):
    watch = client.watch(name)
    assert watch.next().kind == "connected"
    leases = [client.acquire(f"{name}/{number}", ttl=15) for number in range(3)]
    names = [lease.name for lease in leases]
    # As one node sees them: a majority may have granted without it.
    until(lambda: [seen.name for seen in client.list(name)] == names)
    assert sorted({seen.name for seen in client.scan(f"{name}*", page_len=1)}) == names
    held = [watch.next() for _ in leases]
    assert [(change.kind, change.name, change.fence) for change in held] == [
        ("held", lease.name, lease.fence) for lease in leases
    ]
    leases[0].release()
    assert watch.next(timeout=30) == paxoslease.Change("freed", name=names[0])
    with pytest.raises(TimeoutError):
        watch.next(timeout=0.01)
    leases[1].release()
    assert watch.next(timeout=30).name == names[1], "a timeout loses nothing"


def test_a_watch_ends_with_its_client(endpoints):
    with Client(endpoints) as client:
        watch, observer = client.watch(), client.elect("any").observe()
        next(watch)
    assert list(watch) == [] or all(change.kind for change in watch)
    assert list(observer)[1:] == []


def test_an_election_has_one_leader_that_all_can_see(client, name):
    election = client.elect(name, holder="10.0.0.7:9000", ttl=15)
    observer = election.observe()
    assert election.leader() is None and observer.next() is None
    with election as lease:
        assert election.leader() == ("10.0.0.7:9000", lease.fence)
        assert observer.next().holder == "10.0.0.7:9000"
        with pytest.raises(Held):
            client.elect(name).campaign(timeout=0.05)
    assert next(observer) is None
    client.elect(name).campaign().release()


def test_the_status_of_a_node_is_a_dictionary(client):
    status = client.status()
    assert status["ready"] and len(status["members"]) == 3
    assert status["endpoint"] in client.endpoints
    last = client.endpoints[-1]
    assert client.status(last)["node"] == 3 and client.status(last)["endpoint"] == last


def test_a_bad_argument_is_named(client, name):
    for call, text in [
        (lambda: client.acquire("", ttl=15), "bad name"),
        (lambda: client.acquire(name, ttl=0.001), "bad ttl"),
        (lambda: client.acquire(name, ttl=float("nan")), "bad ttl"),
        (lambda: client.acquire(name, ttl=-1), "bad ttl"),
        (lambda: client.acquire(name, ttl=15, timeout=-1), "bad timeout"),
        (lambda: client.acquire(name, ttl=float("inf")), "bad ttl"),
        (lambda: client.acquire(name, ttl=15, permits=65), "permits"),
        (lambda: client.acquire(name, ttl=15, permits=-1), "permits"),
        (lambda: client.scan(name, page_len=0), "page_len"),
        (lambda: client.acquire(name, ttl=15, holder="x" * 300), "holder"),
        (lambda: client.lock(name, ttl=15, timeout=1, blocking=False), "timeout"),
        (lambda: client.release("", 1), "bad name"),
        (lambda: client.acquire(name, ttl=0), "a ttl of 0 is too short"),
        (lambda: Client("::1"), "brackets"),
        (lambda: Client("redis://127.0.0.1:7400"), "no scheme"),
        (lambda: Client(["127.0.0.1:1;127.0.0.1:2"]), "commas"),
        (lambda: Client([]), "no endpoint"),
        (lambda: Client(""), "no endpoint"),
        (lambda: Client("a", ca="missing.pem"), "cannot read missing.pem"),
        (lambda: Client("a", ca=b"nonsense"), "the given CA"),
        (lambda: Client("a", cert="a.pem"), "belong together"),
        (lambda: Client("a", server_name="b"), "`ca`"),
    ]:
        with pytest.raises(InvalidArgument, match=text) as error:
            call()
        assert isinstance(error.value, ValueError) and isinstance(error.value, paxoslease.Error)
    for call, text in [
        (lambda: client.acquire(name, ttl="15s"), "ttl must be a number of seconds or a timedelta, not '15s'"),
        (lambda: client.acquire(name, ttl=15, timeout="5"), "timeout must be a number"),
        (lambda: client.acquire(5, ttl=15), "name must be a str, not 5"),
        (lambda: client.acquire(name, ttl=15, holder=5), "holder must be a str, not 5"),
        (lambda: Client([7400]), "an endpoint must be a str, not 7400"),
        (lambda: client.lock(name, timeout=15), "lock.. needs a ttl, .*`timeout` is how long to wait"),
        (lambda: paxoslease.aio.Client("a").acquire(name), "acquire.. needs a ttl"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()


def test_endpoints_may_be_a_list(endpoints, name):
    with Client(endpoints.split(",")) as client:
        assert ",".join(client.endpoints) == endpoints
        with client.lock(name, ttl=15) as lease:
            assert lease.is_held()


def test_without_a_majority_errors_and_status_say_why(own_cell, name):
    with Client(own_cell.endpoints) as client:
        for place in (0, 1):
            own_cell.kill(place)
        for options in ({"blocking": False}, {"timeout": 1}):
            with pytest.raises(paxoslease.Unavailable, match=r"client.status\(\)"):
                client.acquire(name, ttl=15, **options)
        status = client.status()
        assert status["node"] == 3 and not status["ready"], "the node that lives was asked"


def test_a_cell_that_does_not_answer_is_unavailable(name):
    with Client("127.0.0.1:1", request_timeout=0.5) as client:
        with pytest.raises(paxoslease.Unavailable, match="no answer from 127.0.0.1:1"):
            client.acquire(name, ttl=15)


def test_a_closed_client_says_so(endpoints, name):
    client = Client(endpoints)
    lease = client.acquire(name, ttl=15)
    client.close()
    client.close()
    assert not lease.is_held() and lease.lost.is_set()
    with pytest.raises(paxoslease.Closed, match="shut down"):
        client.acquire(name, ttl=15)


def test_a_client_without_endpoints_reads_the_environment(secure, endpoints, monkeypatch, name):
    monkeypatch.setenv("PAXOSLEASE_ENDPOINTS", endpoints)
    with Client() as client:
        assert ",".join(client.endpoints) == endpoints
    endpoint, folder = secure
    monkeypatch.setenv("PAXOSLEASE_ENDPOINTS", endpoint)
    monkeypatch.setenv("PAXOSLEASE_TLS_CA", str(folder / "certs" / "ca.pem"))
    monkeypatch.setenv("PAXOSLEASE_TOKEN_FILE", str(folder / "token"))
    with Client() as client, client.lock("jobs/env", ttl=15) as lease:
        assert lease.is_held()
    monkeypatch.setenv("PAXOSLEASE_TOKEN_FILE", "missing")
    with pytest.raises(InvalidArgument, match="missing"):
        Client()


def test_tls_and_a_token_authenticate_both_sides(secure):
    endpoint, folder = secure
    certs, token = folder / "certs", (folder / "token").read_text().strip()
    with Client(endpoint, ca=str(certs / "ca.pem"), token=token) as client:
        with client.lock("jobs/a", ttl=15) as lease:
            assert lease.is_held()
        with pytest.raises(paxoslease.AccessDenied):
            client.acquire("other", ttl=15)
        assert token not in repr(client)
    worker = {"cert": certs / "worker.pem", "key": certs / "worker-key.pem"}
    pem = {key: path.read_bytes() for key, path in (worker | {"ca": certs / "ca.pem"}).items()}
    with Client(endpoint, token=token, server_name="localhost", **pem) as client:
        client.acquire("jobs/a", ttl=15).release()
    for options, text in [
        ({"ca": certs / "ca.pem"}, "a token is required, and no valid one was sent; pass token="),
        ({"ca": certs / "ca.pem", "token": "wrong"}, "this token is unknown here; pass token="),
        ({}, f"{endpoint} requires TLS: pass ca="),
    ]:
        with Client(endpoint, **options) as client:
            with pytest.raises(paxoslease.AccessDenied, match=text):
                client.acquire("jobs/a", ttl=15)


def test_help_shows_signatures_and_explanations():
    for thing in (Client, paxoslease.Lease, paxoslease.Election, paxoslease.aio.Client):
        for key, value in vars(thing).items():
            assert key.startswith("_") or value.__doc__, f"{thing.__name__}.{key}"
    import inspect

    assert str(inspect.signature(Client.acquire)).startswith("(self, name: 'str', ttl: 'Seconds', *")
    page = pydoc.plain(pydoc.render_doc(paxoslease))
    assert page.index("\n    Client ") < page.index("_native"), "the public parts come first"


def test_public_names_are_those_that_programs_import():
    for name in paxoslease.__all__:
        assert getattr(getattr(paxoslease, name), "__module__", "paxoslease") == "paxoslease"
    say = "import paxoslease; print(paxoslease.aio.Client.__module__); raise paxoslease.Held('x')"
    done = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True)
    assert done.stdout == "paxoslease.aio\n" and done.stderr.endswith("\npaxoslease.Held: x\n")
