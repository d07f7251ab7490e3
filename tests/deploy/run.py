#!/usr/bin/env python3
"""Plays docs/install.md for Kubernetes, runs what kubectl would send as processes, and watches it.

There is no cluster: see pods.py. The cell of the production overlay is real, with TLS and tokens. Pods
of the examples elect a leader there, and a real Prometheus scrapes it for the dashboard and the alerts.
Must run as root, for the users of containers.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(REPOSITORY / "tests" / "redis"), str(REPOSITORY / "target" / "clients" / "python")]

import elections
import monitoring
from pods import Cluster, Pod
from servers import until

BINARY = REPOSITORY / "target" / "debug" / "paxoslease"
KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
NODES = (1, 2, 3)

KUBECTL = """#!/bin/sh
case "$1 $2" in
"kustomize .") exec real-kubectl "$@" ;;
"apply -f") exec grep -q -e "- --new-cell" ;;
esac
exec >> "$APPLIED"
case "$1 $2" in
"create secret") real-kubectl "$@" --dry-run=client --output=yaml && echo --- ;;
"apply -k") real-kubectl kustomize "$3" && echo --- ;;
"rollout status" | "port-forward service/paxoslease") ;;
*) echo "not expected: kubectl $*" >&2; exit 1 ;;
esac
"""
"""Keeps what the cluster would get in the end. At its first start, nodes found the cell."""


def main():
    if os.geteuid() != 0:
        sys.exit("containers have users of their own: run this as root")
    development, production = snippets()
    with tempfile.TemporaryDirectory() as folder:
        # Users of containers must get through.
        os.chmod(folder, 0o755)
        with_clusters(Path(folder), development, production)


def with_clusters(folder, development, production):
    with cluster(folder, "development", 1, development) as trial:
        with cluster(folder, "production", 2, production) as cell:
            same_settings_in_both()
            trial_nodes = check_and_start(trial)
            nodes = check_and_start(cell, "--new-cell")
            connection = client(folder / "production" / "my-cell" / "overlays" / "tls-tokens")
            step("examples")
            elections.by_the_wrapper(cell, example("elect-wrapper"))
            sidecars = elections.by_the_sidecar(cell, example("elect-sidecar"))
            step("dashboard and alerts")
            monitoring.check(REPOSITORY, folder, BINARY, connection, nodes)
            step("loss of the majority")
            elections.lose(sidecars, [node for _, node in nodes[1:]])
            # Its nodes have been waiting meanwhile, as those of a new cell do.
            step("development overlay")
            for pod, _ in trial_nodes:
                until(lambda: pod.probe("paxoslease", "readinessProbe") == 200, 60)
            acquire = [BINARY, "acquire", "x", "--endpoint", "127.74.1.3:7400"]
            subprocess.run(acquire, check=True, stdout=subprocess.DEVNULL)
    print("all of deploy/kubernetes, deploy/grafana and deploy/prometheus works")


def step(title):
    print(f"=== {title}", flush=True)


def snippets():
    page = (REPOSITORY / "docs" / "install.md").read_text()
    section = page.split("\n## Kubernetes\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def cluster(folder, name, network, snippet):
    """A cluster with the objects of a snippet, all of which are valid."""
    step(f"{name}: docs/install.md")
    folder /= name
    (folder / "bin").mkdir(parents=True)
    (folder / "deploy").symlink_to(REPOSITORY / "deploy")
    (folder / "bin" / "kubectl").write_text(KUBECTL)
    (folder / "bin" / "kubectl").chmod(0o755)
    (folder / "bin" / "real-kubectl").symlink_to(found("kubectl"))
    (folder / "bin" / "paxoslease").symlink_to(BINARY)
    applied = folder / "applied.yaml"
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "APPLIED": str(applied)}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    script = ["sh", "-e", "-c", snippet]
    subprocess.run(script, cwd=folder, env=os.environ | environment, check=True, **streams)
    # The version that the documents require, and the newest that the tool knows.
    validate(applied, "--kubernetes-version=1.28")
    validate(applied)
    made = Cluster(BINARY, folder, network)
    made.apply(applied.read_text())
    return made


def found(program):
    path = f"{REPOSITORY / 'target/clients/kubectl'}:{os.environ['PATH']}"
    command = ["sh", "-c", f"command -v {program}"]
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def validate(path, *options):
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", *options, path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path[:2])}
    subprocess.run(command, env=environment, check=True)


def example(name):
    path = KUBERNETES / "examples" / f"{name}.yaml"
    validate(path, "--kubernetes-version=1.35")
    validate(path)
    return path.read_text()


def same_settings_in_both():
    """The production overlay replaces the file of the base, so they could part."""
    base = tomllib.loads((KUBERNETES / "base/node.toml").read_text())
    overlay = tomllib.loads((KUBERNETES / "overlays/tls-tokens/node.toml").read_text())
    del overlay["access"], overlay["cell"], base["cell"]
    assert overlay == base, (overlay, base)


def check_and_start(made, *options):
    """Three nodes that answer their probes."""
    pods = [Pod(made, "StatefulSet", "paxoslease", index) for index in NODES]
    for pod in pods:
        check = pod.start("paxoslease", ["--check"])
        assert check.end() == 0 and "The configuration is valid." in check.text(), check.text()
    nodes = [(pod, pod.start_node(*options)) for pod in pods]
    for pod, node in nodes:
        until(lambda: pod.probe("paxoslease", "livenessProbe") == 200 or ended(node))
    if options:
        for pod, _ in nodes:
            until(lambda: pod.probe("paxoslease", "readinessProbe") == 200)
    return nodes


def ended(container):
    assert container.is_running(), container.text()


def client(folder):
    """Variables for a client with the token of operators, and for one of applications."""
    nodes = ",".join(f"127.74.2.{node}:7400" for node in NODES)
    common = {
        "PAXOSLEASE_ENDPOINTS": nodes,
        "PAXOSLEASE_TLS_CA": str(folder / "certs/ca.pem"),
        "PAXOSLEASE_TLS_SERVER_NAME": "paxoslease",
    }
    return {name: common | {"PAXOSLEASE_TOKEN_FILE": str(folder / name)} for name in ("token", "monitoring")}


if __name__ == "__main__":
    main()
