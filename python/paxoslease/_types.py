"""What nodes report: hints, a moment old when they are read."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from enum import Enum
from typing import Any, Iterable, Literal, NamedTuple, TypedDict, Union

Seconds = Union[float, timedelta]
"""A span of time: a number of seconds, or a timedelta."""

Endpoints = Union[str, Iterable[str]]
"""One `host:port`, several separated by commas, or a list of them."""

Pem = Union[str, "os.PathLike[str]", bytes]
"""Certificates or a key: the path of a PEM file, or its content as bytes."""


class LeaseInfo(NamedTuple):
    """A lease as a node saw it."""

    name: str
    holder: str
    """The holder text."""
    fence: int
    """The fence of that tenure. Only its holder may renew or release it."""
    remaining: float
    """Seconds until the end unless renewed, when it was seen; `math.inf` if it has no end."""


class Leader(NamedTuple):
    """The leader of an election."""

    holder: str
    """The holder text of the leader: by convention, where to reach it."""
    fence: int
    """The fence of its tenure."""


class Change(NamedTuple):
    """What a watch tells."""

    kind: Literal["held", "freed", "expired", "missed", "connected", "disconnected", "unknown"]
    """`held`, `freed` and `expired` are about a lease, the others about the watch. After `missed` and
    `connected`, ask for the current state: changes before were not seen."""
    name: str | None = None
    """The name of the lease."""
    fence: int | None = None
    """The fence of the tenure that began (`held`) or ran out (`expired`)."""
    lease: LeaseInfo | None = None
    """The lease that began (`held`)."""
    missed: int = 0
    """How many changes were dropped because the watcher did not keep up."""
    endpoint: str | None = None
    """The endpoint whose changes follow (`connected`)."""
    problem: str | None = None
    """Why the connection broke (`disconnected`). The watch goes on trying."""


class LeaseState(Enum):
    """The state of a lease."""

    HELD = "held"
    """Held, and renewed in time."""
    JEOPARDY = "jeopardy"
    """Held, but two thirds of the ttl passed without a renewal: do not begin anything long."""
    LOST = "lost"
    """Not held any more, without the holder's doing. It will not come back."""
    RELEASED = "released"
    """Released by its holder."""


class PeerStatus(TypedDict, total=False):
    """Another node, as a node sees it."""

    node: int
    address: str | None
    up: bool
    rtt_us: int | None
    quarantine_remaining_ms: int
    problem: str | None


class Status(TypedDict, total=False):
    """The status that a node reports about itself and its cell. A node of another version may send
    other fields too."""

    endpoint: str
    cell: str
    node: int
    role: str
    members: list[int]
    max_lease_ms: int
    ready: bool
    quarantine_remaining_ms: int
    has_record: bool
    peers: list[PeerStatus]
    leases: int
    acceptor_bytes: int
    durable: int
    durable_unsettled: int
    durable_free: int
    waiters: int
    waiting: list[dict[str, Any]]
    guards: int
    rounds_in_flight: int
    rates: dict[str, int]
    longest_turn_us: int
    shards: int
    disk_problem: str | None
    ballot_problem: str | None
    ballots_remaining_ratio: str


def seconds(span: Seconds, what: str) -> float:
    """The span of the argument `what`."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    # `float` would accept the text "15".
    if isinstance(span, (str, bytes)) or not hasattr(span, "__float__"):
        raise TypeError(f"{what} must be a number of seconds or a timedelta, not {span!r}")
    return float(span)


def lasting(ttl: Seconds | None, durable: bool) -> float:
    """How long a lease lasts: a durable one for ever unless given."""
    if ttl is None and durable:
        return math.inf
    return seconds(ttl, "ttl")  # type: ignore[arg-type]


def text(value: str, what: str) -> str:
    """The text of the argument `what`."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    return value
