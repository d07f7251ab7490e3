"""APScheduler on several machines, of which one runs the jobs.

Start this program on each machine. One is elected and runs its scheduler; the others wait. If that
machine dies, another runs the jobs after the ttl. A lock around each job would not do: a scheduler
whose clock is late would run the job again.
"""

import os
import socket
from datetime import datetime

from apscheduler.schedulers.background import BackgroundScheduler

from paxoslease import Client, Lease, LeaseLost

PERIOD = float(os.environ.get("PERIOD", "60"))


def clean_up(lease: Lease) -> None:
    lease.check()  # Raises LeaseLost if this process was paused for too long.
    print(f"{os.getpid()} cleans up with fence {lease.fence}", flush=True)


def main() -> None:
    client = Client()  # Reads PAXOSLEASE_ENDPOINTS.
    while True:
        try:
            with client.elect("scheduler/leader", holder=socket.gethostname(), ttl=5) as lease:
                lead(lease)
        except LeaseLost as lost:
            print(lost)  # Stand for election again.


def lead(lease: Lease) -> None:
    scheduler = BackgroundScheduler()
    first = {"next_run_time": datetime.now().astimezone()}
    scheduler.add_job(clean_up, "interval", seconds=PERIOD, args=[lease], **first)
    scheduler.start()
    try:
        lease.lost.wait()
    finally:
        scheduler.shutdown(wait=False)


if __name__ == "__main__":
    main()
