"""The dashboard and the alerts, with a real Prometheus that scrapes a real cell.

Every query returns data, every metric is on the dashboard, and every alert has a unit test.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import yaml

from servers import free_port, until

EMPTY = {
    "Over a limit": "no client is over a limit",
    "Messages dropped between nodes": "no message is dropped",
    "Lines lost by the audit log": "there is no audit log",
}
"""The panels that may have no data in this cell, and why."""

def check(repository, folder, binary, connection, nodes):
    deploy = repository / "deploy"
    dashboard = json.loads((deploy / "grafana/paxoslease.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    rules = yaml.safe_load((deploy / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    promtool("check", "rules", deploy / "prometheus/alerts.yml")
    promtool("test", "rules", deploy / "prometheus/alerts.test.yml")
    every_alert_has_both_cases(rules, deploy / "prometheus/alerts.test.yml")
    every_panel_is_complete(panels)
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    expressions = [query for _, query in queries] + [rule["expr"] for rule in rules]
    every_metric_is_shown(repository, [query for _, query in queries])
    with Prometheus(folder, deploy / "prometheus", connection["monitoring"]) as prometheus:
        until(lambda: prometheus.value("sum(up)") == 3)
        produce(binary, connection, nodes, prometheus)
        for title, query in queries:
            data = prometheus.data(query)
            assert data or title in EMPTY, f"{title} is empty: {query}"
        # Names and labels, also those of alerts that do not fire.
        for query in sorted(selectors(expressions)):
            assert prometheus.data(query) or "audit_dropped" in query, f"no such series: {query}"
        firing = 'count(ALERTS{alertname="PaxosLeaseReloadFailed", alertstate="firing"})'
        until(lambda: prometheus.value(firing) == 1)


def promtool(*words):
    done = subprocess.run(["promtool", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def every_alert_has_both_cases(rules, path):
    cases = [case for test in yaml.safe_load(path.read_text())["tests"] for case in test["alert_rule_test"]]
    for fires in (True, False):
        tested = {case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires}
        assert tested == {rule["alert"] for rule in rules}, (fires, tested)


def every_panel_is_complete(panels):
    taken = set()
    for panel in panels:
        assert len(panel["description"]) > 40 and panel["targets"], panel["title"]
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, f"{panel['title']} overlaps another panel"
        taken |= cells


def every_metric_is_shown(repository, queries):
    lines = (repository / "crates/paxoslease-server/src/metrics.txt").read_text().splitlines()
    exported = {line.split()[1] for line in lines}
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in names(queries)}
    assert shown == exported, shown ^ exported


def names(queries):
    return {name for query in queries for name in re.findall(r"\bpaxoslease_\w+", query)}


def selectors(queries):
    return {found for query in queries for found in re.findall(r"\bpaxoslease_\w+(?:\{[^}]*\})?", query)}


def produce(binary, connection, nodes, prometheus):
    """Something of everything that the dashboard shows."""
    client = {"env": os.environ | connection["token"], "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([binary, "bench", "mixed", "--duration", "3s", "--rate", "2000", "--json"], **client)
    subprocess.run([binary, "bench", "renew", "--duration", "2s", "--leases", "100", "--json"], **client)
    intruder = client["env"] | {"PAXOSLEASE_TOKEN": "wrong"}
    del intruder["PAXOSLEASE_TOKEN_FILE"]
    subprocess.run([binary, "get", "x"], env=intruder, stderr=subprocess.DEVNULL)
    # The first reload that fails, and one that does not.
    pod, node = nodes[0]
    file = pod.folder / "config" / "node.toml"
    text = file.read_text()
    for content, result in (("not TOML", "failed"), (text, "done")):
        file.write_text(content)
        node.kill(signal.SIGHUP)
        until(lambda: prometheus.value(f'sum(paxoslease_reloads_total{{result="{result}"}})') == 1)


class Prometheus:
    """With the example configuration, except addresses, files and intervals."""

    def __init__(self, folder, examples, connection):
        promtool("check", "config", "--syntax-only", examples / "prometheus.yml")
        config = yaml.safe_load((examples / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "250ms", "evaluation_interval": "250ms"}
        config["rule_files"] = [str(examples / file) for file in config["rule_files"]]
        (job,) = config["scrape_configs"]
        job["authorization"]["credentials_file"] = connection["PAXOSLEASE_TOKEN_FILE"]
        job["tls_config"]["ca_file"] = connection["PAXOSLEASE_TLS_CA"]
        for entry in job["static_configs"]:
            entry["targets"] = [f"127.74.2.{node}:7402" for node in (1, 2, 3)]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        self.address = f"127.0.0.1:{free_port()}"
        command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'prometheus'}"]
        command += [f"--web.listen-address={self.address}", "--log.level=error"]
        self.process = subprocess.Popen(command)
        until(self.is_ready)

    def is_ready(self):
        with contextlib.suppress(urllib.error.URLError):
            return urllib.request.urlopen(f"http://{self.address}/-/ready").status == 200

    def data(self, query):
        """The result of a query, with the variables of the dashboard filled in."""
        for name, value in {"$__rate_interval": "30s", "$job": "paxoslease", "$instance": ".*"}.items():
            query = query.replace(name, value)
        url = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{query}: {error.read().decode()}") from None

    def value(self, query):
        data = self.data(query)
        return float(data[0]["value"][1]) if data else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
