"""A command that cron starts on every machine, and that runs on one of them.

    0 3 * * *  python manage.py nightly
"""

from django.core.management.base import BaseCommand

from paxoslease import Client, Held

PERIOD = 3600
"""Clocks differ, so another machine may start after a short run is done. The lease lasts longer."""


class Command(BaseCommand):
    help = "Does the nightly work, on one of all machines that start it."

    def handle(self, *args, **options):
        with Client() as client:  # Reads PAXOSLEASE_ENDPOINTS.
            try:
                turn = client.acquire_detached("jobs/nightly/turn", ttl=15, blocking=False)
            except Held as held:
                self.stdout.write(f"not here: {held}")
                return
            client.keep(turn.name, turn.fence, PERIOD)
            # A lock of its own: a run that takes longer than the period keeps the next one out.
            try:
                work = client.acquire("jobs/nightly/work", ttl=15, blocking=False)
            except Held as held:
                self.stdout.write(f"the last run still works: {held}")
                return
            with work as lease:
                self.stdout.write(f"works with fence {lease.fence}")
