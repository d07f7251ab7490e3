"""What the blocking and the asyncio interface share: settings of a client, and how a lease looks."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any, Callable, Mapping, NoReturn, TypeVar

from ._errors import Error, Forked, InvalidArgument, LeaseLost
from ._native import NativeClient, NativeGrant, NativeLease, begin_exit
from ._types import Endpoints, LeaseState, Pem, Seconds, seconds, text

log = logging.getLogger("paxoslease")

EXIT_PATIENCE = 2.0
"""How many seconds an exiting interpreter waits for the release of its leases."""

ENDPOINT_DEFAULT = "127.0.0.1:7400"


def native_client(
    endpoints: Endpoints | None,
    *,
    token: str | None,
    ca: Pem | None,
    cert: Pem | None,
    key: Pem | None,
    server_name: str | None,
    token_in_clear: bool,
    name: str | None,
    request_timeout: Seconds,
    connect_timeout: Seconds,
) -> NativeClient:
    if endpoints is None:
        env = os.environ
        endpoints = env.get("PAXOSLEASE_ENDPOINTS") or ENDPOINT_DEFAULT
        token = token if token is not None else token_of(env)
        ca = ca or env.get("PAXOSLEASE_TLS_CA")
        cert = cert or env.get("PAXOSLEASE_TLS_CERT")
        key = key or env.get("PAXOSLEASE_TLS_KEY")
        server_name = server_name or env.get("PAXOSLEASE_TLS_SERVER_NAME")
    if not isinstance(endpoints, str):
        endpoints = ",".join(text(endpoint, "an endpoint") for endpoint in endpoints)
    if (cert is None) != (key is None):
        raise InvalidArgument("`cert` and `key` belong together: give both, or none of them")
    client = NativeClient(
        endpoints,
        token=token,
        ca=ca,
        identity=None if cert is None else (cert, key),
        server_name=server_name,
        token_in_clear=token_in_clear,
        name=name,
        request_timeout=seconds(request_timeout, "request_timeout"),
        connect_timeout=seconds(connect_timeout, "connect_timeout"),
    )
    with registry:
        open_clients.add(client)
    return client


def token_of(env: Mapping[str, str]) -> str | None:
    if token := env.get("PAXOSLEASE_TOKEN"):
        return token
    if not (path := env.get("PAXOSLEASE_TOKEN_FILE")):
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        text = f"cannot read PAXOSLEASE_TOKEN_FILE: {error}; expected a file with a token"
        raise InvalidArgument(text) from error


def wait_of(blocking: bool, timeout: Seconds | None) -> float | None:
    """How long an acquire waits; None for ever."""
    if not blocking:
        if timeout is not None:
            raise InvalidArgument("`timeout` is for an acquire that waits: leave out blocking=False")
        return 0.0
    return None if timeout is None else seconds(timeout, "timeout")


F = TypeVar("F", bound=Callable[..., Any])


def needs_ttl(method: F) -> F:
    """Says what is missing to a program that knows other libraries, where `timeout` is the ttl."""

    @functools.wraps(method)
    def call(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        ttl = args[0] if args else kwargs.get("ttl")
        if ttl is None and not kwargs.get("durable"):
            raise TypeError(
                f"{method.__name__}() needs a ttl, how long the lease lasts if this process dies: "
                "ttl=15. `timeout` is how long to wait for it"
            )
        text(name, "name")
        if kwargs.get("holder") is not None:
            text(kwargs["holder"], "holder")
        return method(self, name, *args, **kwargs)

    return call  # type: ignore[return-value]


registry = threading.RLock()
"""Guards `open_clients`."""

open_clients: weakref.WeakSet[NativeClient] = weakref.WeakSet()


exiting = False
"""Whether the interpreter ends."""


def close_all() -> None:
    """Releases all leases before the interpreter ends, so that others need not wait for the ttl."""
    global exiting
    exiting = True
    begin_exit()
    deadline = time.monotonic() + EXIT_PATIENCE
    pending = []
    with registry:
        clients = list(open_clients)
    for client in clients:
        try:
            pending.append(client.shutdown())
            # Begins it.
            pending[-1].wait(0)
        except (Error, TimeoutError):
            pass
    for each in pending:
        try:
            each.wait(deadline - time.monotonic())
        except (Error, TimeoutError, RuntimeError):
            pass


atexit.register(close_all)


def forget_clients() -> None:
    """The clients of the parent are of no use to a child, and another thread may have held the lock."""
    global registry
    registry = threading.RLock()
    open_clients.clear()


os.register_at_fork(after_in_child=forget_clients)


class LeaseView:
    """A lease as its holder sees it."""

    __slots__ = ("__weakref__", "_client", "_native", "_seen")

    def __init__(self, native: NativeLease, client: NativeClient) -> None:
        self._native = native
        # Keeps it among the clients that are closed when the interpreter ends.
        self._client = client
        self._seen = (0, LeaseState.HELD.value)

    @property
    def name(self) -> str:
        """The name that is held: that of the permit, if one of a semaphore was acquired."""
        return self._native.name

    @property
    def holder(self) -> str:
        """The holder text that others see."""
        return self._native.holder

    @property
    def fence(self) -> int:
        """The fencing token: greater for every later tenure of the same name.

        Pass it along with every write to a store that refuses lower fences.
        """
        return self._native.fence

    @property
    def ttl(self) -> float:
        """The ttl in seconds, with which the lease is renewed."""
        return self._native.ttl

    def is_held(self) -> bool:
        """Whether the lease is held, by a fresh reading of the clock.

        It does not cover what happens after the call: the process may be paused before it acts on
        the result. Where that matters, let the store check the fence.
        """
        return self._native.is_held()

    def remaining(self) -> float:
        """For how many seconds the lease is held if no renewal succeeds; 0 once it is over."""
        return self._native.remaining()

    @property
    def state(self) -> LeaseState:
        """The state of the lease, by a fresh reading of the clock."""
        return LeaseState(self._native.state())

    @property
    def renewals(self) -> int:
        """How often the lease was renewed."""
        return self._native.renewals()

    def check(self) -> None:
        """Raises LeaseLost unless the lease is held."""
        if not self.is_held():
            raise self._lost()

    def _lost(self) -> LeaseLost:
        error = LeaseLost(f'"{self.name}" (fence {self.fence}) is not held any more; acquire it anew')
        error.name, error.fence = self.name, self.fence
        return error

    def __del__(self) -> None:
        """Warns of a lease that is held although the program has dropped it. The lease is released."""
        try:
            is_forgotten = not exiting and self._native.is_held()
        except (AttributeError, Forked):
            # It was not made, or it is the parent's.
            return
        if is_forgotten:
            warnings.warn(f"unreleased {self!r}", ResourceWarning, stacklevel=2, source=self)

    def _was_left(self, lost: LeaseLost | None, raised: BaseException | None) -> None:
        """The end of a `with` block, after the release."""
        if lost is not None and replaces(raised):
            raise lost

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease belongs to its process: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        try:
            state = self.state.value
        except Forked:
            state = "of the parent process"
        return f"<Lease {self.name!r}, fence {self.fence}, {state}>"


class Grant:
    """A lease that is not renewed, and not released when it is dropped.

    Keep the fence to renew or release it, from here or from another process.
    """

    __slots__ = ("_native",)

    def __init__(self, native: NativeGrant) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name of the lease: that of the permit, if one of a semaphore was acquired."""
        return self._native.name

    @property
    def fence(self) -> int:
        """The fencing token: greater for every later tenure of the same name."""
        return self._native.fence

    @property
    def ttl(self) -> float:
        """The ttl in seconds that was granted."""
        return self._native.ttl

    @property
    def waited(self) -> float:
        """How many seconds the request was queued, as the node says."""
        return self._native.waited

    def is_held(self) -> bool:
        """Whether the lease is held, by a fresh reading of the clock, unless it was released."""
        return self._native.is_held()

    def remaining(self) -> float:
        """How many seconds the lease lasts unless renewed or released; 0 once it is over."""
        return self._native.remaining()

    def __repr__(self) -> str:
        return f"<Grant {self.name!r}, fence {self.fence}, {self.remaining():.3f} s>"


def replaces(raised: BaseException | None) -> bool:
    """Whether the end of a `with` block raises LeaseLost instead of what the block raised. An
    interrupt, an exit and a cancellation go on."""
    return raised is None or isinstance(raised, Exception)


def checked_callback(on_lost: Callable[..., Any] | None) -> None:
    if on_lost is not None and not callable(on_lost):
        raise TypeError(f"on_lost must be a function, not {on_lost!r}")
