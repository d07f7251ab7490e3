"""The same as `paxoslease`, for asyncio.

>>> import asyncio
>>> from paxoslease.aio import Client
>>> async def main():
...     async with Client(endpoints) as client:
...         async with client.lock("jobs/nightly", ttl=15) as lease:
...             print("held:", lease.is_held())
>>> asyncio.run(main())
held: True

Cancelling a task that waits withdraws its request. A client may be used from several event loops.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import threading
import weakref
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Generic,
    Literal,
    NoReturn,
    TypeVar,
    overload,
)

from ._base import Grant, LeaseView, checked_callback, log, native_client, needs_ttl, replaces, wait_of
from ._errors import EndOfStream, Forked, InvalidArgument, LeaseLost, Unavailable
from ._native import NativeLease, NativeStream, Pending, Ready
from ._types import Change, Endpoints, Leader, LeaseInfo, LeaseState, Pem, Seconds, Status, lasting, seconds

__all__ = ["Client", "Election", "Lease", "Lock", "LostEvent", "Observer", "Scan", "Watch"]

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Bridge:
    """Runs requests of the native client on one event loop.

    The client's thread makes a file descriptor readable, and the loop polls what is ready.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ready = Ready()
        self._ids = itertools.count()
        self._waiting: dict[int, tuple[Pending[Any], asyncio.Future[Any]]] = {}
        # The loop keeps the bridge, and gives it up when it is closed.
        loop.add_reader(self._ready.fileno(), self._poll)

    async def run(self, pending: Pending[T], unseen: Callable[[T], object]) -> T:
        """`unseen` gets the result if the task is cancelled in the moment in which it comes."""
        id = next(self._ids)
        if (done := pending.poll(self._ready, id)) is not None:
            return done[0]
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (pending, future)
        try:
            return await future
        except BaseException:
            pending.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                unseen(future.result())
            raise
        finally:
            del self._waiting[id]

    def _poll(self) -> None:
        for id in self._ready.take():
            pending, future = self._waiting.get(id, (None, None))
            if pending is None or future is None or future.done():
                continue
            try:
                done = pending.poll(self._ready, id)
            except Exception as error:
                future.set_exception(error)
            else:
                if done is not None:
                    future.set_result(done[0])


bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Bridge]]
bridges = weakref.WeakKeyDictionary()


async def run(pending: Pending[T], unseen: Callable[[T], object] = id) -> T:
    loop = asyncio.get_running_loop()
    reference = bridges.get(loop)
    bridge = reference() if reference is not None else None
    if bridge is None:
        bridge = Bridge(loop)
        bridges[loop] = weakref.ref(bridge)
    return await bridge.run(pending, unseen)


class LostEvent:
    """Tells when a lease is lost, like an `asyncio.Event` that the client sets."""

    __slots__ = ("_native",)

    def __init__(self, native: NativeLease) -> None:
        self._native = native

    def is_set(self) -> bool:
        """Whether the lease was lost. False while it is held, and after its release."""
        return self._native.is_lost()

    async def wait(self) -> bool:
        """Waits until the lease is lost, and returns True then, before another holder can have the
        lease, as long as the event loop runs in time. Returns False when the lease is released."""
        return await run(self._native.ended())


class Lease(LeaseView):
    """A lease that is held. It renews itself in the background until it is released or lost, even
    while the event loop is busy.

    As an async context manager it is released at the end of the block. Entering the block raises
    LeaseLost if the lease is over. An object that is garbage collected releases its lease too, with
    a ResourceWarning: keep the object as long as the lease is needed.
    """

    __slots__ = ()

    @property
    def lost(self) -> LostEvent:
        """Tells when the lease is lost: `await lease.lost.wait()`, `lease.lost.is_set()`."""
        return LostEvent(self._native)

    async def changed(self) -> LeaseState:
        """Waits until the lease is renewed or its state changes, and returns the state. It compares
        with what the last call returned, so no change between two calls goes unnoticed."""
        self._seen = await run(self._native.changed(*self._seen))
        return LeaseState(self._seen[1])

    async def run(self, work: Awaitable[T]) -> T:
        """Runs `work` while the lease is held. If the lease is lost first, cancels `work` and raises
        LeaseLost. Success means that the lease was held until the end of `work`.

        >>> async def main():
        ...     async with Client(endpoints) as client:
        ...         async with client.lock("doc/run", ttl=15) as lease:
        ...             return await lease.run(asyncio.sleep(0, "worked"))
        >>> asyncio.run(main())
        'worked'
        """
        if not self.is_held():
            if inspect.iscoroutine(work):
                work.close()
            raise self._lost()
        working = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(run(self._native.ended()))
        cancelled: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
                if ended.done() and not working.done():
                    working.cancel()
                    await asyncio.wait((working,))
            except asyncio.CancelledError as error:
                # The work is cancelled too, and nothing returns before it has ended.
                cancelled = error
                working.cancel()
        ended.cancel()
        if cancelled is None and self.is_held():
            return working.result()
        if not working.cancelled():
            # Retrieved, so that asyncio does not report it: the cancellation or the loss counts.
            working.exception()
        raise cancelled or self._lost()

    async def release(self) -> None:
        """Releases the lease, so that the next holder need not wait for the ttl. A second call does
        nothing.

        Raises LeaseLost if the lease was lost before, and Unavailable if no majority confirmed: then
        the lease is free when its ttl is over. It is not held in any case.
        """
        if pending := self._native.release():
            await run(pending)

    async def __aenter__(self) -> Lease:
        self.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lost: LeaseLost | None = None
        try:
            lost = self._lost() if self.lost.is_set() else None
            await self.release()
        except LeaseLost as error:
            lost = error
        except Unavailable as error:
            log.warning("%s: %s", self.name, error)
        except Forked:
            # The lease is the parent's. A child that exits is not stopped.
            if replaces(raised):
                raise
            return
        self._was_left(lost, raised)


class Lock:
    """A lock by the name of a lease, from `Client.lock`. Each `async with` acquires a new lease.

    One `async with` at a time: tasks that share a name call `Client.lock` each.
    """

    def __init__(self, acquire: Callable[[], Awaitable[Lease]], name: str) -> None:
        self._acquire = acquire
        self._name = name
        self._is_used = threading.Lock()
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        if not self._is_used.acquire(blocking=False):
            text = f"the lock object {self._name!r} is in use: make another one by Client.lock"
            raise RuntimeError(text)
        try:
            self._lease = await self._acquire()
        except BaseException:
            self._is_used.release()
            raise
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None, "its block was entered"
        self._is_used.release()
        await lease.__aexit__(kind, raised, trace)

    def __repr__(self) -> str:
        return f"<Lock {self._name!r}>"


class Stream(Generic[T]):
    """Items that come one at a time, for one task at a time."""

    def __init__(self, native: NativeStream[T]) -> None:
        self._native = native
        self._unseen: list[T] = []

    async def next(self) -> T:
        """The next item. Raises StopAsyncIteration at the end: when the client was closed, or no
        endpoint trusts it. Cancelling it loses no item."""
        if self._unseen:
            return self._unseen.pop()
        try:
            return await run(self._native.next(), self._unseen.append)
        except EndOfStream:
            raise StopAsyncIteration from None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await self.next()


class Watch(Stream[Change]):
    """Changes of leases, from `Client.watch`. Hints: show them, decide nothing by them."""


class Observer(Stream["Leader | None"]):
    """The leader as it changes, from `Election.observe`; None while no candidate leads. A hint."""


class Scan(Stream[LeaseInfo]):
    """Held leases, from `Client.scan`. A name may come twice."""


class Election:
    """An election among all candidates for the same name, from `Client.elect`.

    As an async context manager, it waits until this candidate leads, and resigns at the end of the
    block.
    """

    def __init__(
        self, client: Client, name: str, campaign: Callable[[Seconds | None], Awaitable[Lease]]
    ) -> None:
        self._client = client
        self._campaign = campaign
        self._lock = Lock(lambda: campaign(None), name)
        self.name = name
        """The name of the election."""

    async def campaign(self, timeout: Seconds | None = None) -> Lease:
        """Waits until this candidate leads. The lease of the leader resigns when it is released.

        Raises Held if another candidate leads for longer than `timeout` seconds.
        """
        return await self._campaign(timeout)

    async def leader(self) -> Leader | None:
        """Who leads, as a majority reported it a moment ago; None if no candidate does. A hint."""
        seen = await self._client.get(self.name)
        return None if seen is None else Leader(seen.holder, seen.fence)

    def observe(self) -> Observer:
        """Follows who leads. Hints, of which only the latest counts."""
        return Observer(self._client._native.observe(self.name))

    async def __aenter__(self) -> Lease:
        return await self._lock.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._lock.__aexit__(kind, raised, trace)


class Client:
    """A client of a cell, for asyncio. The arguments are those of `paxoslease.Client`.

    As an async context manager it is closed at the end of the block.
    """

    def __init__(
        self,
        endpoints: Endpoints | None = None,
        *,
        token: str | None = None,
        ca: Pem | None = None,
        cert: Pem | None = None,
        key: Pem | None = None,
        server_name: str | None = None,
        token_in_clear: bool = False,
        name: str | None = None,
        request_timeout: Seconds = 5,
        connect_timeout: Seconds = 1,
    ) -> None:
        self._native = native_client(
            endpoints,
            token=token,
            ca=ca,
            cert=cert,
            key=key,
            server_name=server_name,
            token_in_clear=token_in_clear,
            name=name,
            request_timeout=request_timeout,
            connect_timeout=connect_timeout,
        )

    @needs_ttl
    def lock(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """A lock for `async with`, with the arguments of `acquire`.

        The block gets the lease. Leaving the block releases it, and raises LeaseLost if the lease
        was lost meanwhile, unless the task is cancelled. The block itself goes on after a loss: see
        `Lease.run` for work that must stop.
        """
        wait_of(blocking, timeout)
        acquire = functools.partial(
            self.acquire,
            name,
            ttl,
            timeout=timeout,
            blocking=blocking,
            holder=holder,
            permits=permits,
            durable=durable,
            on_lost=on_lost,
        )
        return Lock(acquire, name)

    @overload
    def exclusive(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
        pass_lease: Literal[False] = False,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def exclusive(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
        pass_lease: Literal[True],
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Callable[[Callable[Concatenate[Lease, P], Awaitable[R]]], Callable[P, Awaitable[R]]]: ...

    @needs_ttl
    def exclusive(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
        pass_lease: bool = False,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Callable[[Any], Any]:
        """A decorator for coroutine functions: they run while the lock `name` is held, and are
        cancelled when it is lost.

        With `pass_lease` the function gets the lease as its first argument. A call raises Held if
        the lock could not be acquired, and LeaseLost if it was lost before the function returned.
        """
        checked_callback(on_lost)
        wait_of(blocking, timeout)
        acquire = functools.partial(
            self.acquire,
            name,
            ttl,
            timeout=timeout,
            blocking=blocking,
            holder=holder,
            permits=permits,
            durable=durable,
            on_lost=on_lost,
        )

        def decorate(function: Any) -> Any:
            if not inspect.iscoroutinefunction(function):
                raise TypeError("paxoslease.aio decorates functions that are `async def`")

            @functools.wraps(function)
            async def exclusively(*args: Any, **kwargs: Any) -> Any:
                async with await acquire() as lease:
                    first = (lease,) if pass_lease else ()
                    return await lease.run(function(*first, *args, **kwargs))

            return exclusively

        return decorate

    @needs_ttl
    async def acquire(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lease:
        """Acquires a lease, which renews itself until it is released. The arguments are those of
        `paxoslease.Client.acquire`; the event loop calls `on_lost`, which may be `async def`."""
        checked_callback(on_lost)
        wait = wait_of(blocking, timeout)
        pending = self._native.acquire(name, lasting(ttl, durable), wait, holder, permits, durable)
        native = await run(pending, NativeLease.discard)
        lease = Lease(native, self._native)
        if on_lost is not None:
            task = asyncio.ensure_future(notify(native.ended(), weakref.ref(lease), on_lost))
            notifying.add(task)
            task.add_done_callback(notifying.discard)
        return lease

    @needs_ttl
    async def acquire_detached(
        self,
        name: str,
        ttl: Seconds | None = None,
        *,
        timeout: Seconds | None = None,
        blocking: bool = True,
        holder: str | None = None,
        permits: int | None = None,
        durable: bool = False,
    ) -> Grant:
        """Acquires a lease that is neither renewed nor released by itself. See `renew`, `release`."""
        wait = wait_of(blocking, timeout)
        pending = self._native.acquire_detached(name, lasting(ttl, durable), wait, holder, permits, durable)
        return Grant(await run(pending))

    async def renew(self, name: str, fence: int, ttl: Seconds) -> Grant:
        """Renews a tenure that was granted to this holder, here or in another process. Raises
        LeaseLost if that tenure is over. Never renew a tenure that a hint has shown."""
        return Grant(await run(self._native.renew(name, fence, seconds(ttl, "ttl"))))

    async def keep(self, name: str, fence: int, duration: Seconds | None = None) -> Grant:
        """Makes a tenure durable, and sets how long it lasts. See `paxoslease.Client.keep`."""
        return Grant(await run(self._native.keep(name, fence, lasting(duration, True))))

    async def release(
        self, name: str, fence: int, *, force: bool = False, durable: bool = False
    ) -> None:
        """Releases a tenure that was granted to this holder, here or in another process. See
        `paxoslease.Client.release`, also for `force` and `durable`."""
        await run(self._native.release(name, fence, force, durable))

    def elect(
        self,
        name: str,
        *,
        holder: str | None = None,
        ttl: Seconds = 15,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Election:
        """An election by this name. `holder` is by convention where to reach this candidate."""

        async def campaign(timeout: Seconds | None) -> Lease:
            return await self.acquire(name, ttl, timeout=timeout, holder=holder, on_lost=on_lost)

        return Election(self, name, campaign)

    async def get(self, name: str) -> LeaseInfo | None:
        """The holder of a name, as a majority reported it a moment ago; None if it is free. A hint:
        only the holder knows that it holds."""
        return await run(self._native.get(name))

    async def list(self, prefix: str = "") -> list[LeaseInfo]:
        """The leases of names that begin with `prefix`, in order, as one node sees them. Hints."""
        return await run(self._native.list(prefix))

    def scan(self, prefix: str = "", *, page_len: int = 500) -> Scan:
        """Like `list`, but one lease at a time, for many. In no order, and a name may come twice."""
        if page_len < 1:
            raise InvalidArgument(f"bad page_len: {page_len} is less than 1")
        return Scan(self._native.scan(prefix, page_len))

    def watch(self, prefix: str = "") -> Watch:
        """Follows leases of names that begin with `prefix`, as one node sees them. Hints."""
        return Watch(self._native.watch(prefix))

    async def status(self, endpoint: str | None = None) -> Status:
        """The cell as seen by the node at `endpoint`, or by the node that this client is connected
        to. A hint."""
        return await run(self._native.status(endpoint))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of this client, in the order in which it tries them."""
        return tuple(self._native.endpoints)

    @property
    def default_holder(self) -> str:
        """The holder text of leases that set none: `user@host:pid`."""
        return self._native.default_holder

    async def close(self) -> None:
        """Releases every lease of this client, ends its waits, and its thread. A lease that is still
        held then counts as lost: release it before."""
        await run(self._native.shutdown())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client belongs to its process: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        return f"<Client {','.join(self.endpoints)}>"


notifying: set[asyncio.Future[None]] = set()


async def notify(
    ended: Pending[bool], reference: weakref.ref[Lease], on_lost: Callable[[Lease], object]
) -> None:
    if not await run(ended):
        return
    # Not the lease itself: a lease that the program dropped is released.
    if (lease := reference()) is None:
        return
    try:
        called = on_lost(lease)
        if inspect.isawaitable(called):
            await called
    except Exception:
        log.exception("on_lost of %s failed", lease.name)
