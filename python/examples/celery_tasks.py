"""A Celery task that runs once at a time, however many workers get it.

    celery --app celery_tasks worker

Celery forks its workers, and a lease is never shared with a forked process. So each worker makes
its own client, when it needs it for the first time.
"""

import functools
import os
from pathlib import Path

from celery import Celery

from paxoslease import Client, Held

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
LOG = Path(os.environ.get("REPORT_LOG", "reports.log"))

app = Celery("reports", broker=REDIS, backend=REDIS)


@functools.cache
def cell() -> Client:
    return Client()  # Reads PAXOSLEASE_ENDPOINTS.


@app.task
def build_report(day: str) -> str:
    try:
        with cell().lock("reports/build", ttl=15, blocking=False) as lease:
            write_report(day, lease.fence)
    except Held as held:
        return f"skipped: {held}"
    return "built"


def write_report(day: str, fence: int) -> None:
    with LOG.open("a") as log:
        print("begin", day, fence, file=log, flush=True)
        print("end", day, fence, file=log, flush=True)
