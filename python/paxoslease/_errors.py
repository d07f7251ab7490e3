"""The exceptions of the package. Each carries the message of the Rust client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._types import LeaseInfo


class Error(Exception):
    """The base of all exceptions of this package."""


class Held(Error):
    """Another holder has the lease, and the wait, if any, is over."""

    name: str = ""
    """The name that was asked for."""

    holder: LeaseInfo | None = None
    """The holder: a hint. None if the lease was released just after the refusal."""


class LeaseLost(Error):
    """The lease is over: it was not renewed in time, or an operator released it.

    Work that was done under it may have overlapped with that of the next holder. The next holder has
    a higher fence.
    """

    name: str = ""
    """The name of the lease."""

    fence: int = 0
    """The fence of the tenure that is over."""


class Unavailable(Error):
    """No node answered, no majority of the cell answered, or a node is at a limit. Try again."""


class AccessDenied(Error):
    """A token or certificate is missing, unknown or insufficient. A retry does not help."""


class InvalidArgument(Error, ValueError):
    """A name, ttl, endpoint or another argument is not valid. Nothing was sent."""


class Closed(Error):
    """The client was closed."""


class Forked(Closed):
    """A forked child used a client or lease of its parent. Make a new client in the child."""


class EndOfStream(Error):
    """For this package only: the last item of a stream was taken."""
