"""Leases of a PaxosLease cell: locks that expire, for work that only one process may do at a time.

Client          a client of a cell: lock, acquire, exclusive, elect, get, list, watch, status
Lock, Lease     what `client.lock` and `client.acquire` return; Grant: a lease that is not renewed
Election        what `client.elect` returns
Error           the base of Held, LeaseLost, Unavailable, AccessDenied, InvalidArgument, Closed, Forked
paxoslease.aio  the same for asyncio

>>> from paxoslease import Client
>>> client = Client(endpoints)                       # "10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400"
>>> with client.lock("jobs/nightly", ttl=15) as lease:  # Waits its turn, and renews the lease.
...     print("held:", lease.is_held())               # Send lease.fence with every write.
held: True

Modules whose names begin with an underscore are not for programs.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from ._base import Grant
from ._client import Client, Election, Lease, Lock, LostEvent, Observer, Scan, Watch
from ._errors import (
    AccessDenied,
    Closed,
    Error,
    Forked,
    Held,
    InvalidArgument,
    LeaseLost,
    Unavailable,
)
from ._native import VERSION as __version__
from ._types import Change, Leader, LeaseInfo, LeaseState, PeerStatus, Status

if TYPE_CHECKING:
    from . import aio as aio

__all__ = [
    "AccessDenied",
    "Change",
    "Client",
    "Closed",
    "Election",
    "Error",
    "Forked",
    "Grant",
    "Held",
    "InvalidArgument",
    "Leader",
    "Lease",
    "LeaseInfo",
    "LeaseLost",
    "LeaseState",
    "Lock",
    "LostEvent",
    "Observer",
    "PeerStatus",
    "Scan",
    "Status",
    "Unavailable",
    "Watch",
    "__version__",
]

for _name in __all__:
    if isinstance(_public := globals()[_name], type):
        # Where programs import it from: tracebacks and `help` show that.
        _public.__module__ = __name__
del _name, _public


def __getattr__(name: str) -> ModuleType:
    """Imports `paxoslease.aio`, and asyncio with it, only for programs that use it."""
    if name == "aio":
        return importlib.import_module("paxoslease.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
