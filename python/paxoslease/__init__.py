"""Leases of a PaxosLease cell: locks that expire, for work that only one process may do at a time.

>>> from paxoslease import Client
>>> client = Client(endpoints)                       # "10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400"
>>> with client.lock("jobs/nightly", ttl=15) as lease:  # Waits its turn, and renews the lease.
...     print("held:", lease.is_held())               # Send lease.fence with every write.
held: True

`paxoslease.aio` has the same for asyncio. The exceptions are subclasses of `Error`.
"""

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
