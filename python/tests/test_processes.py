"""Several processes: contention, crashes, pauses, forks and exits."""

import os
import signal

import pytest

from paxoslease import Client, Held


def test_processes_take_turns(script, tmp_path, client, name):
    """Each adds one to a number in a file, without any other lock, and appends its fence."""
    total, fences = tmp_path / "total", tmp_path / "fences"
    total.write_text("0")
    workers = [
        script(f"""
            from pathlib import Path
            total, fences = Path({str(total)!r}), open({str(fences)!r}, "a")
            for _ in range(25):
                with client.lock(name, ttl=15) as lease:
                    number = int(total.read_text())
                    total.write_text(str(number + 1))
                    print(lease.fence, file=fences, flush=True)
        """)
        for _ in range(8)
    ]
    assert [worker.end() for worker in workers] == [(0, "", "")] * 8
    assert total.read_text() == "200"
    written = [int(line) for line in fences.read_text().split()]
    assert len(written) == 200 and written == sorted(set(written))


def test_a_killed_node_costs_no_lease(own_cell, name):
    with Client(",".join(own_cell.endpoints)) as client:
        with client.lock(name, ttl=1) as lease:
            own_cell.kill(client.endpoints.index(client.status()["endpoint"]))
            before = lease.renewals
            while lease.renewals < before + 3:
                assert lease.is_held()
                lease.changed()
            assert client.get(name).fence == lease.fence
            with pytest.raises(Held):
                client.acquire(name, ttl=1, blocking=False)
        assert not lease.lost.is_set()


def test_a_process_that_was_paused_past_its_ttl_has_lost_its_lease(script, client, name):
    paused = script("""
        try:
            with client.lock(name, ttl=0.5, on_lost=lambda lease: say("on_lost")) as lease:
                say(lease.fence)
                input()
                say(lease.is_held(), lease.remaining(), lease.lost.wait(), lease.lost.is_set())
                input()
        except paxoslease.LeaseLost as error:
            say(error.fence)
    """)
    fence = int(paused.hear())
    os.kill(paused.pid, signal.SIGSTOP)
    with client.lock(name, ttl=15, timeout=30) as lease:
        assert lease.fence > fence
        paused.go()
        os.kill(paused.pid, signal.SIGCONT)
        assert sorted([paused.hear(), paused.hear()]) == ["False 0.0 True True", "on_lost"]
        paused.go()
        assert paused.hear() == str(fence)
        assert paused.end() == (0, "", "")


def test_a_killed_process_leaves_its_lease_until_the_ttl(script, client, name):
    holder = script("lease = client.acquire(name, ttl=1); say(lease.fence); input()")
    fence = int(holder.hear())
    os.kill(holder.pid, signal.SIGKILL)
    assert client.acquire(name, ttl=1, timeout=30).fence > fence


WAITS = {
    "acquire": "client.acquire(name, ttl=15)",
    "lock": "client.lock(name, ttl=15).__enter__()",
    "lost": "mine.lost.wait()",
    "watch": "[change for change in client.watch(name)]",
    "observe": "[leader for leader in client.elect(name).observe()]",
    "changed": "[None for _ in iter(mine.changed, None)]",
    "thread": "import threading; t = threading.Thread(target=client.acquire, args=(name, 15), "
    "daemon=True); t.start(); mine.lost.wait()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_interrupt_ends_every_wait(script, client, name, wait):
    with client.lock(name, ttl=15):
        waiting = script(f"""
            mine = client.acquire(name + "/mine", ttl=15)
            try:
                say("waiting")
                {wait}
            except KeyboardInterrupt:
                say("interrupted")
        """)
        assert waiting.hear() == "waiting"
        os.kill(waiting.pid, signal.SIGINT)
        assert waiting.end() == (0, "interrupted\n", "")


def test_an_interrupt_ends_a_wait_of_asyncio(script, client, name):
    with client.lock(name, ttl=15):
        waiting = script("""
            import asyncio
            from paxoslease import aio
            async def main():
                async with aio.Client(sys.argv[1]) as client:
                    say("waiting")
                    await client.acquire(name, ttl=15)
            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                say("interrupted")
        """)
        assert waiting.hear() == "waiting"
        os.kill(waiting.pid, signal.SIGINT)
        assert waiting.end() == (0, "interrupted\n", "")


def test_a_forked_child_cannot_use_the_client_of_its_parent(script, client, name):
    parent = script("""
        import gc, os
        lease = client.acquire(name, ttl=15)
        watch = client.watch(name)
        lock = client.lock(name + "/other", ttl=15)
        calls = {
            "acquire": lambda: client.acquire(name, ttl=15),
            "lock": lock.__enter__,
            "is_held": lease.is_held,
            "release": lease.release,
            "lost": lease.lost.wait,
            "watch": watch.next,
            "close": client.close,
        }
        def child():
            for what, call in calls.items():
                try:
                    say(what, call())
                except paxoslease.Forked as error:
                    say(what, "Forked", "make a new Client" in str(error))
        if os.fork() == 0:
            child()
            with paxoslease.Client(sys.argv[1]) as own:
                say("own", own.get(name).fence == lease.fence)
            # What the child drops, at once or at its end, stays the parent's.
            del lease, watch, lock, calls, client
            gc.collect()
            sys.exit(0)
        os.wait()
        say("parent", lease.is_held(), client.get(name).fence == lease.fence)
        lease.release()
    """)
    code, out, errors = parent.end()
    assert (code, errors) == (0, "")
    calls = ["acquire", "lock", "is_held", "release", "lost", "watch", "close"]
    assert out.splitlines() == [
        *(f"{call} Forked True" for call in calls),
        "own True",
        "parent True True",
    ]
    assert client.get(name) is None


def test_a_child_that_exits_inside_a_block_exits(script, client, name):
    parent = script("""
        import os
        with client.lock(name, ttl=15) as lease:
            if os.fork() == 0:
                assert "of the parent process" in repr(lease)
                sys.exit(5)
            say(os.waitstatus_to_exitcode(os.wait()[1]), lease.is_held())
    """)
    assert parent.end() == (0, "5 True\n", "")


def test_an_interrupt_ends_a_wait_in_a_child_of_a_thread(script, client, name):
    with client.lock(name, ttl=15):
        parent = script("""
            import os, signal, threading
            client.get(name)
            def work():
                child = os.fork()
                if child == 0:
                    own = paxoslease.Client(sys.argv[1])
                    try:
                        say("waiting", os.getpid())
                        own.acquire(name, ttl=15)
                    except KeyboardInterrupt:
                        say("interrupted")
                        os._exit(0)
                    os._exit(1)
                say("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        """)
        waiting = parent.hear().split()
        os.kill(int(waiting[1]), signal.SIGINT)
        assert parent.end() == (0, "interrupted\nchild 0\n", "")


def test_a_pool_of_forked_processes_needs_clients_of_their_own(script):
    pool = script("""
        import multiprocessing
        context = multiprocessing.get_context("fork")
        def work(number):
            try:
                client.get(name)
            except paxoslease.Forked:
                with paxoslease.Client(sys.argv[1]) as own, own.lock(name, ttl=15):
                    return number
        with context.Pool(4) as workers:
            say(workers.map(work, range(8)))
    """)
    code, out, errors = pool.end()
    assert (code, out, errors) == (0, f"{list(range(8))}\n", "")


ENDS = {
    "end of the script": "",
    "exit": "sys.exit(0)",
    "exit while a thread waits": """
import threading
threading.Thread(target=client.acquire, args=(name, 15), daemon=True).start()
while not any(client.status(each)["waiters"] for each in client.endpoints): pass
""",
    "exit while threads are busy": """
import threading
def ask():
    while True:
        client.get(name)
        lease.lost.wait(0.001)
for _ in range(3):
    threading.Thread(target=ask, daemon=True).start()
client.get(name)
""",
    "exit of a dropped client": "del client",
    "exit with a callback": 'other = client.acquire(name + "/2", 15, on_lost=lambda lease: say("lost"))',
    "exit with a watch": "watch = client.watch(name); watch.next()",
    "exit with a cycle": "cycle = [lease]; cycle.append(cycle)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_interpreter_that_ends_releases_its_leases(script, client, name, end):
    # The ttl is longer than the test may take.
    holder = script("lease = client.acquire(name, ttl=60)\nsay(lease.fence)\n" + end)
    fence = int(holder.hear())
    code, out, errors = holder.end()
    assert (code, out, errors) == (0, "", "")
    with client.lock(name, ttl=15, timeout=30) as lease:
        assert lease.fence > fence


def test_an_exit_does_not_wait_long_for_a_cell_that_is_gone(own_cell, script, name):
    holder = script("lease = client.acquire(name, ttl=60)\nsay('held')\ninput()", ",".join(own_cell.endpoints))
    assert holder.hear() == "held"
    for place in range(3):
        own_cell.kill(place)
    holder.go()
    code, _, errors = holder.end()
    assert (code, errors) == (0, "")


