"""Calls `on_lost` of leases."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Callable

from . import _base
from ._base import log
from ._native import Pending, Ready

if TYPE_CHECKING:
    from ._client import Lease


class LossNotifier:
    """Waits for the loss of leases with `on_lost`, on one thread for all."""

    def __init__(self) -> None:
        self._ready: Ready | None = None
        # The garbage collector may run a program's code inside `add`.
        self._lock = threading.RLock()
        self._ids = itertools.count()
        self._leases: dict[int, tuple[Pending[bool], weakref.ref[Lease], Callable[[Lease], object]]] = {}

    def add(self, lease: Lease, on_lost: Callable[[Lease], object]) -> None:
        with self._lock:
            if self._ready is None:
                self._ready = Ready(blocking=True)
                arguments = {"name": "paxoslease-on-lost", "daemon": True, "args": (self._ready,)}
                threading.Thread(target=self._run, **arguments).start()  # type: ignore[arg-type]
            id = next(self._ids)
            # Not the lease itself: a lease that the program dropped is released.
            self._leases[id] = (lease._native.ended(), weakref.ref(lease), on_lost)
            self._ready.push(id)

    def _run(self, ready: Ready) -> None:
        while True:
            for id in ready.take():
                self._poll(ready, id)

    def _poll(self, ready: Ready, id: int) -> None:
        if id not in self._leases:
            return
        pending, reference, on_lost = self._leases[id]
        ended = pending.poll(ready, id)
        if ended is None:
            return
        del self._leases[id]
        lease = reference()
        if ended[0] and lease is not None and not _base.exiting:
            # A callback that blocks delays no other.
            threading.Thread(target=call, args=(on_lost, lease), daemon=True).start()


def call(on_lost: Callable[[Lease], object], lease: Lease) -> None:
    try:
        on_lost(lease)
    except Exception:
        log.exception("on_lost of %s failed", lease.name)


notifier = LossNotifier()


def renew_notifier() -> None:
    global notifier
    notifier = LossNotifier()


# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=renew_notifier)
