"""Two pods of an example: one leads, and the other takes over only when the first has stopped.

In place of the application there is a judge: it takes a lock of the system that all pods share, and
fails if another pod still has it.
"""

import contextlib
import os
import re
import signal
from pathlib import Path

from pods import Pod
from servers import until

JUDGE = """
exec 9> /judge/lock
flock --nonblock 9 || { echo two pods act at once; exit 1; }
echo "acts with fence $PAXOSLEASE_FENCE"
sleep infinity & wait
"""


class Candidate:
    """A pod of the example, and its containers."""

    def __init__(self, cluster, index):
        self.pod = Pod(cluster, "Deployment", "elected", index)
        shared = cluster.folder / "judge"
        shared.mkdir(mode=0o777, exist_ok=True)
        shared.chmod(0o777)
        (self.pod.folder / "judge").symlink_to(shared)
        app = self.pod.container("app")
        app["command"][-1] = JUDGE
        if app["volumeMounts"][-1]["name"] != "judge":
            app["volumeMounts"].append({"name": "judge", "mountPath": "/judge"})

    def start(self, *containers):
        for name in containers:
            setattr(self, name, self.pod.start(name))
        return self

    def fences(self):
        text = self.app.text()
        assert "two pods act at once" not in text, text
        return [int(fence) for fence in re.findall(r"acts with fence (\d+)", text)]

    def until_it_acts_after(self, fence):
        """The fence of its newest leadership, which is higher."""
        return until(lambda: max(self.fences(), default=0) > fence and self.fences()[-1])


def until_waiting(container):
    until(lambda: "waiting:" in container.text())


def has_open(container, path):
    """Whether the first process of a container has opened this file."""
    for file in Path(f"/proc/{container.first}/fd").iterdir():
        # The process may close a file meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(file) == path:
                return True
    return False


def by_the_wrapper(cluster, manifest):
    cluster.apply(manifest)
    first, second = Candidate(cluster, 1).start("app"), Candidate(cluster, 2)
    fence = first.until_it_acts_after(0)
    second.start("app")
    until_waiting(second.app)
    first.app.kill(signal.SIGTERM)
    fence = second.until_it_acts_after(fence)
    # A kill of the whole container: the lease runs out.
    first.start("app")
    second.app.kill(signal.SIGKILL)
    first.until_it_acts_after(fence)
    first.app.kill(signal.SIGTERM)
    first.app.end()
    for candidate in (first, second):
        candidate.pod.folder.rename(f"{candidate.pod.folder}-wrapped")


def by_the_sidecar(cluster, manifest):
    cluster.apply(manifest)
    first, second = Candidate(cluster, 1), Candidate(cluster, 2)
    for candidate in (first, second):
        assert candidate.start("pipes").pipes.end() == 0, candidate.pipes.text()
    fence = first.start("elect", "app").until_it_acts_after(0)
    second.start("elect", "app")
    until_waiting(second.elect)

    # The sidecar is killed: the application ends at once, and the other pod leads when the ttl is over.
    first.elect.kill(signal.SIGKILL)
    first.app.end()
    fence = second.until_it_acts_after(fence)

    # The application ends first, as when a pod is deleted: the sidecar resigns.
    first.start("elect", "app")
    second.app.kill(signal.SIGTERM)
    second.app.end()
    assert second.elect.end() == 0, second.elect.text()
    fence = first.until_it_acts_after(fence)

    # Only the sidecar is stopped: it stops the application before it resigns.
    second.start("elect", "app")
    first.elect.kill(signal.SIGTERM)
    first.elect.end()
    first.app.end()
    second.until_it_acts_after(fence)

    # A pod that does not lead is deleted.
    first.start("elect", "app")
    until(lambda: has_open(first.app, "/lead/alive"))
    first.app.kill(signal.SIGTERM)
    first.app.end()
    first.elect.kill(signal.SIGTERM)
    assert first.elect.end() == 0, first.elect.text()
    return second


def lose(candidate, nodes):
    """Without a majority the lease cannot be renewed: the application ends, then the sidecar."""
    for node in nodes:
        node.kill(signal.SIGKILL)
    candidate.app.end()
    assert candidate.elect.end() == 75, candidate.elect.text()
