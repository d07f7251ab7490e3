"""The blocking interface. Every wait releases the interpreter lock and ends at a Ctrl-C."""

from __future__ import annotations

import functools
import inspect
import threading
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Iterator,
    Literal,
    NoReturn,
    TypeVar,
    overload,
)

from . import _losses
from ._base import Grant, LeaseView, checked_callback, log, native_client, needs_ttl, replaces, wait_of
from ._errors import EndOfStream, Forked, InvalidArgument, LeaseLost, Unavailable
from ._native import NativeLease, NativeStream, Pending
from ._types import Change, Endpoints, Leader, LeaseInfo, LeaseState, Pem, Seconds, Status, lasting, seconds

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

class LostEvent:
    """Tells when a lease is lost, like a `threading.Event` that the client sets."""

    __slots__ = ("_native",)

    def __init__(self, native: NativeLease) -> None:
        self._native = native

    def is_set(self) -> bool:
        """Whether the lease was lost. False while it is held, and after its release."""
        return self._native.is_lost()

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Waits until the lease is lost, and returns True then, before another holder can have the
        lease, as long as this process is scheduled in time.

        Returns False after `timeout` seconds, or when the lease is released.
        """
        try:
            return self._native.ended().wait(None if timeout is None else seconds(timeout, "timeout"))
        except TimeoutError:
            return False


class Lease(LeaseView):
    """A lease that is held. It renews itself in the background until it is released or lost, even
    while Python code holds the interpreter lock.

    As a context manager it is released at the end of the block. Entering the block raises LeaseLost
    if the lease is over. An object that is garbage collected releases its lease too, with a
    ResourceWarning: keep the object as long as the lease is needed.
    """

    __slots__ = ()

    @property
    def lost(self) -> LostEvent:
        """Tells when the lease is lost: `lease.lost.wait()`, `lease.lost.is_set()`."""
        return LostEvent(self._native)

    def changed(self, timeout: Seconds | None = None) -> LeaseState:
        """Waits until the lease is renewed or its state changes, and returns the state.

        It compares with what the last call returned, so no change between two calls goes unnoticed.
        Returns the state after `timeout` seconds too.
        """
        try:
            pending = self._native.changed(*self._seen)
            self._seen = pending.wait(None if timeout is None else seconds(timeout, "timeout"))
        except TimeoutError:
            return self.state
        return LeaseState(self._seen[1])

    def release(self) -> None:
        """Releases the lease, so that the next holder need not wait for the ttl. A second call does
        nothing.

        Raises LeaseLost if the lease was lost before, and Unavailable if no majority confirmed: then
        the lease is free when its ttl is over. It is not held in any case.
        """
        if pending := self._native.release():
            pending.wait()

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lost: LeaseLost | None = None
        try:
            lost = self._lost() if self.lost.is_set() else None
            self.release()
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
    """A lock by the name of a lease, from `Client.lock`. Each `with` acquires a new lease.

    One `with` at a time: threads that share a name call `Client.lock` each.
    """

    def __init__(self, acquire: Callable[[], Lease], name: str) -> None:
        self._acquire = acquire
        self._name = name
        self._is_used = threading.Lock()
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        if not self._is_used.acquire(blocking=False):
            text = f"the lock object {self._name!r} is in use: make another one by Client.lock"
            raise RuntimeError(text)
        try:
            self._lease = self._acquire()
        except BaseException:
            self._is_used.release()
            raise
        return self._lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None, "its block was entered"
        self._is_used.release()
        lease.__exit__(kind, raised, trace)

    def __repr__(self) -> str:
        return f"<Lock {self._name!r}>"


class Stream(Generic[T]):
    """Items that come one at a time, for one thread at a time."""

    def __init__(self, native: NativeStream[T]) -> None:
        self._native = native
        self._next: Pending[T] | None = None

    def next(self, timeout: Seconds | None = None) -> T:
        """The next item. Raises TimeoutError after `timeout` seconds, and StopIteration at the end:
        when the client was closed, or no endpoint trusts it."""
        if self._next is None:
            self._next = self._native.next()
        try:
            item = self._next.wait(None if timeout is None else seconds(timeout, "timeout"))
        except TimeoutError:
            raise
        except EndOfStream:
            self._next = None
            raise StopIteration from None
        except BaseException:
            self._next = None
            raise
        self._next = None
        return item

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()


class Watch(Stream[Change]):
    """Changes of leases, from `Client.watch`. Hints: show them, decide nothing by them."""


class Observer(Stream["Leader | None"]):
    """The leader as it changes, from `Election.observe`; None while no candidate leads. A hint."""


class Scan(Stream[LeaseInfo]):
    """Held leases, from `Client.scan`. A name may come twice."""


class Election:
    """An election among all candidates for the same name, from `Client.elect`.

    As a context manager, it waits until this candidate leads, and resigns at the end of the block.
    """

    def __init__(self, client: Client, name: str, campaign: Callable[[Seconds | None], Lease]) -> None:
        self._client = client
        self._campaign = campaign
        self._lock = Lock(lambda: campaign(None), name)
        self.name = name
        """The name of the election."""

    def campaign(self, timeout: Seconds | None = None) -> Lease:
        """Waits until this candidate leads. The lease of the leader resigns when it is released.

        Raises Held if another candidate leads for longer than `timeout` seconds.
        """
        return self._campaign(timeout)

    def leader(self) -> Leader | None:
        """Who leads, as a majority reported it a moment ago; None if no candidate does. A hint."""
        seen = self._client.get(self.name)
        return None if seen is None else Leader(seen.holder, seen.fence)

    def observe(self) -> Observer:
        """Follows who leads. Hints, of which only the latest counts."""
        return Observer(self._client._native.observe(self.name))

    def __enter__(self) -> Lease:
        return self._lock.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, raised, trace)


class Client:
    """A client of a cell.

    One connection serves all leases of a client, and a thread of its own renews them. When a node
    fails, the client goes on with the next endpoint. All methods may be called from any thread. A
    process that forks needs a new client in the child.

    - `endpoints`: `host:port`, several separated by commas or in a list; the port is 7400 by
      default. Without endpoints, the environment decides, as it does for the command `paxoslease`:
      PAXOSLEASE_ENDPOINTS, PAXOSLEASE_TOKEN or PAXOSLEASE_TOKEN_FILE, PAXOSLEASE_TLS_CA,
      PAXOSLEASE_TLS_CERT, PAXOSLEASE_TLS_KEY, PAXOSLEASE_TLS_SERVER_NAME.
    - `token`: authenticates this client.
    - `ca`: the authority that signed the nodes' certificates; the client uses TLS then. A path, or
      PEM as bytes. `cert` and `key`: a certificate of the client, where nodes require one.
      `server_name`: the name in the nodes' certificates, if it differs from the endpoint's host.
    - `token_in_clear`: permits to send the token to other machines without TLS.
    - `name`: what nodes call this client in logs and lists.
    - `request_timeout`: how long a request may take, without the wait for a lease.
    - `connect_timeout`: how long a connection attempt may take.

    It connects with the first request. As a context manager it is closed at the end of the block.

    >>> with Client(endpoints) as client:
    ...     with client.lock("doc/first", ttl=15) as lease:
    ...         lease.is_held()
    True
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
        """A lock for `with`, with the arguments of `acquire`.

        The block gets the lease. Leaving the block releases it, and raises LeaseLost if the lease
        was lost meanwhile, unless the block raises KeyboardInterrupt, SystemExit or the like.

        >>> with client.lock("doc/lock", ttl=15, timeout=5) as lease:
        ...     lease.name
        'doc/lock'
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
    ) -> Callable[[Callable[Concatenate[Lease, P], R]], Callable[P, R]]: ...

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
        """A decorator: the function runs while the lock `name` is held.

        With `pass_lease` the function gets the lease as its first argument. A call raises Held if
        the lock could not be acquired, and LeaseLost if it was lost before the function returned.

        >>> @client.exclusive("doc/report", ttl=15, blocking=False, pass_lease=True)
        ... def report(lease, day):
        ...     return f"{day} by {lease.name}"
        >>> report("Monday")
        'Monday by doc/report'
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
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError("an `async def` needs a client of paxoslease.aio")
            if inspect.isgeneratorfunction(function):
                raise TypeError("a generator would run after the lock is released")

            @functools.wraps(function)
            def exclusively(*args: Any, **kwargs: Any) -> Any:
                with acquire() as lease:
                    return function(*((lease,) if pass_lease else ()), *args, **kwargs)

            return exclusively

        return decorate

    @needs_ttl
    def acquire(
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
        """Acquires a lease, which renews itself until it is released.

        - `ttl`: how long the lease lasts unless it is renewed, from 0.05 s to the cell's longest. If
          this process dies, it takes that long until another can have the lease.
        - Waits in line for `timeout` seconds, or for ever; with `blocking=False` not at all. Raises
          Held then, or Unavailable if no majority of the cell is reachable.
        - `holder`: the text that others see; `user@host:pid` by default.
        - `permits`: asks for one of this many permits of a semaphore, so that as many holders can
          have one at a time.
        - `durable`: the lease is on disk, and outlives this process and every crash. Without a ttl it
          lasts until it is released. The ttl may be longer than the cell's longest.
        - `on_lost`: called with the lease, on a thread of its own, when the lease is lost. A function
          that refers to the lease keeps it from being released by the garbage collector.

        >>> lease = client.acquire("doc/acquire", ttl=15)
        >>> client.acquire("doc/acquire", ttl=15, blocking=False, holder="me")
        Traceback (most recent call last):
        ...
        paxoslease.Held: "doc/acquire" is held by ...
        >>> lease.release()
        """
        checked_callback(on_lost)
        wait = wait_of(blocking, timeout)
        native = self._native.acquire(name, lasting(ttl, durable), wait, holder, permits, durable).wait()
        lease = Lease(native, self._native)
        if on_lost is not None:
            _losses.notifier.add(lease, on_lost)
        return lease

    @needs_ttl
    def acquire_detached(
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
        """Acquires a lease that is neither renewed nor released by itself. See `renew`, `release`.

        >>> grant = client.acquire_detached("doc/detached", ttl=15)
        >>> client.renew(grant.name, grant.fence, ttl=20).is_held()
        True
        >>> client.release(grant.name, grant.fence)
        """
        wait = wait_of(blocking, timeout)
        pending = self._native.acquire_detached(name, lasting(ttl, durable), wait, holder, permits, durable)
        return Grant(pending.wait())

    def renew(self, name: str, fence: int, ttl: Seconds) -> Grant:
        """Renews a tenure that was granted to this holder, here or in another process. Raises
        LeaseLost if that tenure is over. Never renew a tenure that a hint has shown."""
        return Grant(self._native.renew(name, fence, seconds(ttl, "ttl")).wait())

    def keep(self, name: str, fence: int, duration: Seconds | None = None) -> Grant:
        """Makes a tenure durable, and sets how long it lasts from now on; without a duration until it
        is released. First stop relying on it beyond an earlier end. The grant may have a higher fence,
        which replaces the one before. Raises LeaseLost if that tenure is over. After another error
        either end may be in force: rely on the shorter time, and release it with `durable=True`.

        >>> grant = client.acquire_detached("doc/keep", ttl=15)
        >>> grant = client.keep(grant.name, grant.fence, 3600)
        >>> client.get("doc/keep").remaining > 3000
        True
        >>> client.release(grant.name, grant.fence)
        """
        return Grant(self._native.keep(name, fence, lasting(duration, True)).wait())

    def release(
        self, name: str, fence: int, *, force: bool = False, durable: bool = False
    ) -> None:
        """Releases a tenure that was granted to this holder, here or in another process. The holder
        must have stopped using it before. Raises LeaseLost if that tenure was over.

        With `force`, an operator releases the tenure of another holder, which breaks the promise of
        one holder until the old one notices. With a token, that requires `admin`.
        """
        self._native.release(name, fence, force, durable).wait()

    def elect(
        self,
        name: str,
        *,
        holder: str | None = None,
        ttl: Seconds = 15,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Election:
        """An election by this name. `holder` is by convention where to reach this candidate.

        >>> election = client.elect("doc/primary", holder="10.0.0.7:5432")
        >>> with election as lease:
        ...     election.leader().holder
        '10.0.0.7:5432'
        >>> election.leader() is None
        True
        """

        def campaign(timeout: Seconds | None) -> Lease:
            return self.acquire(name, ttl, timeout=timeout, holder=holder, on_lost=on_lost)

        return Election(self, name, campaign)

    def get(self, name: str) -> LeaseInfo | None:
        """The holder of a name, as a majority reported it a moment ago; None if it is free. A hint:
        only the holder knows that it holds."""
        return self._native.get(name).wait()

    def list(self, prefix: str = "") -> list[LeaseInfo]:
        """The leases of names that begin with `prefix`, in order, as one node sees them. Hints."""
        return self._native.list(prefix).wait()

    def scan(self, prefix: str = "", *, page_len: int = 500) -> Scan:
        """Like `list`, but one lease at a time, for many. In no order, and a name may come twice."""
        if page_len < 1:
            raise InvalidArgument(f"bad page_len: {page_len} is less than 1")
        return Scan(self._native.scan(prefix, page_len))

    def watch(self, prefix: str = "") -> Watch:
        """Follows leases of names that begin with `prefix`, as one node sees them. Hints.

        >>> watch = client.watch("doc/watched")
        >>> watch.next().kind
        'connected'
        >>> with client.lock("doc/watched", ttl=15): pass
        >>> watch.next().kind, watch.next().kind
        ('held', 'freed')
        """
        return Watch(self._native.watch(prefix))

    def status(self, endpoint: str | None = None) -> Status:
        """The cell as seen by the node at `endpoint`, or by the node that this client is connected
        to. A hint.

        >>> client.status()["ready"]
        True
        """
        return self._native.status(endpoint).wait()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of this client, in the order in which it tries them."""
        return tuple(self._native.endpoints)

    @property
    def default_holder(self) -> str:
        """The holder text of leases that set none: `user@host:pid`."""
        return self._native.default_holder

    def close(self) -> None:
        """Releases every lease of this client, ends its waits, and its thread. A lease that is still
        held then counts as lost: release it before."""
        self._native.shutdown().wait()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client belongs to its process: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        return f"<Client {','.join(self.endpoints)}>"
