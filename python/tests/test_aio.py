"""The interface for asyncio."""

import asyncio
import gc

import pytest
from servers import until

import paxoslease
from paxoslease import Held, LeaseLost, LeaseState, aio


async def test_a_lock_is_held_inside_its_block_only(aclient, name):
    async with aclient.lock(name, ttl=15) as lease:
        assert lease.is_held()
        assert (await aclient.get(name)).fence == lease.fence
        with pytest.raises(Held):
            await aclient.acquire(name, ttl=15, blocking=False)
    assert not lease.is_held()
    assert await aclient.get(name) is None


async def test_tasks_take_turns(aclient, name):
    inside, fences = [], []

    async def work():
        async with aclient.lock(name, ttl=15) as lease:
            assert not inside
            inside.append(lease)
            fences.append(lease.fence)
            await asyncio.sleep(0)
            inside.remove(lease)

    await asyncio.gather(*(work() for _ in range(100)))
    assert len(fences) == 100 and fences == sorted(set(fences))


async def test_a_cancelled_task_leaves_the_queue(aclient, name):
    async with aclient.lock(name, ttl=15):
        waiting = asyncio.ensure_future(aclient.acquire(name, ttl=15))

        async def waiters():
            return sum([(await aclient.status(each))["waiters"] for each in aclient.endpoints])

        while not await waiters():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while await waiters():
            await asyncio.sleep(0.01)
    await (await aclient.acquire(name, ttl=15, timeout=5)).release()


async def test_a_lease_granted_to_a_cancelled_task_is_released(aclient, name):
    for delay in range(30):
        acquiring = asyncio.ensure_future(aclient.acquire(name, ttl=15))
        await asyncio.sleep(delay / 30_000)
        acquiring.cancel()
        try:
            await (await acquiring).release()
        except asyncio.CancelledError:
            pass
    async with aclient.lock(name, ttl=15, timeout=5):
        pass


async def test_a_lost_lease_cancels_the_work_under_it(aclient, name):
    told = []
    stopped = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(LeaseLost) as error:
        async with aclient.lock(name, ttl=1, on_lost=told.append) as lease:
            assert await lease.run(asyncio.sleep(0, 7)) == 7
            await aclient.release(name, lease.fence, force=True)
            with pytest.raises(LeaseLost):
                await lease.run(work())
            assert stopped.is_set() and lease.lost.is_set() and await lease.lost.wait()
            stopped.clear()
            with pytest.raises(LeaseLost):
                await lease.run(work())
            assert not stopped.is_set(), "it never began"
            assert await lease.changed() is LeaseState.LOST
    assert error.value.__context__ is None, "an assertion of the block would be there"
    while not told:
        await asyncio.sleep(0)
    assert told == [lease]


async def test_an_error_of_the_work_is_its_own(aclient, name):
    async def fail():
        raise KeyError("mine")

    async with aclient.lock(name, ttl=15) as lease:
        with pytest.raises(KeyError):
            await lease.run(fail())
        working = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(working.cancel)
        with pytest.raises(asyncio.CancelledError):
            await lease.run(working)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lease.run(asyncio.Event().wait()), 0.01)
        assert lease.is_held()


async def test_a_decorated_coroutine_runs_with_the_lock(aclient, name):
    @aclient.exclusive(name, ttl=15, pass_lease=True)
    async def double(lease, number):
        assert (await aclient.get(name)).fence == lease.fence
        return 2 * number

    assert await asyncio.gather(double(1), double(2)) == [2, 4]
    with pytest.raises(TypeError, match="async def"):
        aclient.exclusive(name, ttl=15)(lambda: None)


async def test_a_thousand_leases_at_once_are_renewed(aclient, name):
    leases = await asyncio.gather(*(aclient.acquire(f"{name}/{n}", ttl=2) for n in range(1000)))
    while any(lease.renewals < 3 for lease in leases):
        await asyncio.sleep(0.05)
        assert all(lease.is_held() for lease in leases)
    assert len({lease.fence for lease in leases}) == 1000
    assert len(await aclient.list(name)) == 1000
    await asyncio.gather(*(lease.release() for lease in leases))


async def test_streams_are_async_iterators(aclient, name):
    watch, election = aclient.watch(name), aclient.elect(name, holder="here", ttl=15)
    assert (await watch.next()).kind == "connected"
    observer = election.observe()
    assert await observer.next() is None
    async with election as lease:
        assert (await watch.next()).lease.fence == lease.fence
        assert await observer.next() == await election.leader() == ("here", lease.fence)
        assert [seen.name async for seen in aclient.scan(name)] == [name]
    with pytest.raises(asyncio.TimeoutError):
        while True:
            await asyncio.wait_for(watch.next(), 0.2)
    await aclient.close()
    assert [change async for change in watch] == []


async def test_leases_by_fence(aclient, name):
    grant = await aclient.acquire_detached(name, ttl=15)
    assert (await aclient.renew(name, grant.fence, 20)).ttl == 20
    await aclient.keep(name, grant.fence, 3600)
    await aclient.release(name, grant.fence)
    with pytest.raises(LeaseLost):
        await aclient.renew(name, grant.fence, 20)


def test_a_client_may_be_used_from_several_loops(endpoints, name):
    client = aio.Client(endpoints)

    async def once():
        async with client.lock(name, ttl=15) as lease:
            return lease.fence

    fences = [asyncio.run(once()) for _ in range(5)]
    assert fences == sorted(set(fences))
    asyncio.run(client.close())


async def test_work_that_resists_its_cancellation_is_waited_for(aclient, name):
    steps = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")
            await asyncio.sleep(0.05)
            steps.append("cleaned up")
            raise KeyError("of the clean-up")

    async with aclient.lock(name, ttl=15) as lease:
        running = asyncio.ensure_future(lease.run(work()))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert steps[0] == "cancelled" and lease.is_held()


async def test_a_cancelled_watch_loses_no_change(aclient, name):
    watch = aclient.watch(name)
    assert (await watch.next()).kind == "connected"
    for number in range(20):
        waiting = asyncio.ensure_future(watch.next())
        lease = await aclient.acquire(f"{name}/{number}", ttl=15)
        waiting.cancel()
        try:
            change = await waiting
        except asyncio.CancelledError:
            change = await watch.next()
        assert (change.kind, change.name) == ("held", lease.name)
        await lease.release()
        assert (await watch.next()).kind == "freed"


def test_a_closed_loop_leaves_no_waiter(client, endpoints, name):
    other = aio.Client(endpoints)
    with client.lock(name, ttl=15):
        loop = asyncio.new_event_loop()
        task = loop.create_task(other.acquire(name, ttl=15))
        waiters = lambda: any(client.status(each)["waiters"] for each in client.endpoints)  # noqa: E731

        async def wait():
            while not waiters():
                await asyncio.sleep(0.01)

        loop.run_until_complete(wait())
        loop.set_exception_handler(lambda *_: None)
        loop.close()
        del loop, task
        gc.collect()
        until(lambda: not waiters())
    client.acquire(name, ttl=15, timeout=10).release()
    asyncio.run(other.close())


def test_a_busy_loop_loses_no_lease(endpoints, name):
    async def main():
        async with aio.Client(endpoints) as client, client.lock(name, ttl=0.5) as lease:
            # Blocks the loop for three times the ttl.
            until(lambda: lease.renewals > 5)
            assert lease.is_held()

    asyncio.run(main())


async def test_a_closed_client_says_so(endpoints, name):
    client = aio.Client(endpoints)
    await client.close()
    with pytest.raises(paxoslease.Closed):
        await client.acquire(name, ttl=15)
