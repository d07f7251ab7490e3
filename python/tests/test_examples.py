"""The examples for Celery, APScheduler and Django, as their users run them."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import PATIENCE, REPOSITORY
from servers import Redis

from paxoslease import Client

EXAMPLES = REPOSITORY / "python" / "examples"


@pytest.fixture
def environment(own_cell, tmp_path):
    own = {"PAXOSLEASE_ENDPOINTS": ",".join(own_cell.endpoints), "PYTHONDONTWRITEBYTECODE": "1"}
    return os.environ | own


@pytest.fixture
def start(environment):
    started = []

    def start(*command, folder=EXAMPLES, **options):
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment | options,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def test_a_celery_task_runs_once_at_a_time(start, tmp_path, monkeypatch):
    log = tmp_path / "reports.log"
    with Redis() as redis:
        options = {"REDIS_URL": f"redis://{redis.endpoints[0]}/0", "REPORT_LOG": str(log)}
        worker = ["-m", "celery", "--app", "celery_tasks", "worker", "--concurrency", "2"]
        workers = [start(*worker, "--hostname", f"worker{number}@here", **options) for number in (1, 2)]
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setenv("REDIS_URL", options["REDIS_URL"])
        import celery_tasks

        results = [celery_tasks.build_report.delay(f"day {number}") for number in range(40)]
        answers = [result.get(timeout=PATIENCE) for result in results]
        celery_tasks.app.close()
        for process in workers:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
    built = answers.count("built")
    assert built >= 1 and all(answer.startswith("skipped:") for answer in answers if answer != "built")
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    assert [word for word, _ in lines] == ["begin", "end"] * built
    assert all(begin[1] == end[1] for begin, end in zip(lines[::2], lines[1::2]))
    fences = [int(line[1].split()[-1]) for line in lines[::2]]
    assert fences == sorted(set(fences))


def test_one_scheduler_runs_the_jobs(start):
    """The second takes over when the first is killed."""
    first = start("scheduler.py", PERIOD="0.05")
    line = first.stdout.readline().split()
    assert line[:3] == [str(first.pid), "cleans", "up"]
    second = start("scheduler.py", PERIOD="0.05")
    for _ in range(10):
        assert first.stdout.readline().split()[0] == str(first.pid)
    first.kill()
    later = second.stdout.readline().split()
    assert later[0] == str(second.pid) and int(later[-1]) > int(line[-1])


def test_a_management_command_runs_on_one_machine(start, environment):
    folder = EXAMPLES / "django_project"
    runs = [start("manage.py", "nightly", folder=folder) for _ in range(5)]
    with ThreadPoolExecutor() as executor:
        outputs = list(executor.map(lambda run: run.communicate(timeout=PATIENCE), runs))
    assert [run.returncode for run in runs] == [0] * 5, outputs
    words = sorted(output.split()[0] for output, _ in outputs)
    assert words == ["not"] * 4 + ["works"]
    late, _ = start("manage.py", "nightly", folder=folder).communicate(timeout=PATIENCE)
    assert late.startswith("not here"), "the lease outlasts a short run"
    with Client(environment["PAXOSLEASE_ENDPOINTS"]) as client:
        turn = client.get("jobs/nightly/turn")
        client.release(turn.name, turn.fence, force=True)
        with client.lock("jobs/nightly/work", ttl=15):
            run = start("manage.py", "nightly", folder=folder)
            during, errors = run.communicate(timeout=PATIENCE)
    assert during.startswith("the last run still works") and run.returncode == 0, errors


