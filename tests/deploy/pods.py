"""Containers of pods as processes, from the objects that `kubectl` would send to a cluster.

A container has its own root and process namespace (bubblewrap), and the user, volumes, variables and
arguments of its manifest. There is no image: a container sees the programs of this machine. All pods
share the network, so each has an address on loopback, and a node listens there instead of 0.0.0.0.
"""

import base64
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

import yaml

PATIENCE = 60


class Cluster:
    """The objects, and the pods that were started from them."""

    def __init__(self, binary, folder, network):
        self.binary, self.folder, self.network = binary, folder, network
        self.objects = {}
        self.containers = []
        self.hosts = folder / "hosts"
        names = (f"127.74.{network}.{node} paxoslease-{node}.paxoslease-nodes" for node in (1, 2, 3))
        self.hosts.write_text("".join(f"{line}\n" for line in names))

    def apply(self, text):
        for part in filter(None, yaml.safe_load_all(text)):
            self.objects[part["kind"], part["metadata"]["name"]] = part

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for container in self.containers:
            container.kill(signal.SIGKILL)


class Pod:
    """A pod of a StatefulSet or Deployment."""

    def __init__(self, cluster, kind, name, index):
        self.cluster, self.name, self.address = cluster, f"{name}-{index}", f"127.74.{cluster.network}.{index}"
        self.spec = cluster.objects[kind, name]["spec"]["template"]["spec"]
        self.fields = {
            "metadata.name": self.name,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        self.folder = cluster.folder / self.name
        claims = cluster.objects[kind, name]["spec"].get("volumeClaimTemplates", [])
        for volume in self.spec["volumes"] + [{"name": claim["metadata"]["name"]} for claim in claims]:
            self.fill(volume)

    def fill(self, volume):
        """Makes the folder of a volume, with the owner and mode that Kubernetes gives it."""
        folder, group = self.folder / volume["name"], self.spec["securityContext"]["fsGroup"]
        folder.mkdir(parents=True)
        files, mode = {}, 0o644
        match volume:
            case {"configMap": {"name": name}}:
                data = self.cluster.objects["ConfigMap", name]["data"]
                files = {name: text.encode() for name, text in data.items()}
            case {"secret": {"secretName": name, "defaultMode": mode}}:
                data = self.cluster.objects["Secret", name]["data"]
                files = {name: base64.b64decode(text) for name, text in data.items()}
            case {"image": _}:
                (folder / "usr/bin").mkdir(parents=True)
                shutil.copy(self.cluster.binary, folder / "usr/bin/paxoslease")
            case {"emptyDir": {}} | {"name": "data"}:
                os.chown(folder, 0, group)
                folder.chmod(0o2777)
            case _:
                raise ValueError(f"{self.name}: unknown volume {volume}")
        for name, data in files.items():
            (folder / name).write_bytes(data)
            os.chown(folder / name, 0, group)
            (folder / name).chmod(mode)

    def container(self, name):
        every = self.spec.get("initContainers", []) + self.spec["containers"]
        return next(container for container in every if container["name"] == name)

    def start(self, name, more=(), **variables):
        """Starts a container, with more arguments and variables than its manifest has."""
        spec, values = self.container(name), {"PATH": "/usr/bin"}
        for variable in spec.get("env", []):
            if "valueFrom" in variable:
                value = self.fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                # Kubernetes fills in only what stands before.
                value = expanded(variable["value"], values)
            values[variable["name"]] = value
        words = spec.get("command", ["/entrypoint"]) + spec.get("args", []) + list(more)
        container = Container(self, spec, [expanded(word, values) for word in words], values | variables)
        self.cluster.containers.append(container)
        return container

    def start_node(self, *more):
        ports = {"PEERS": 7401, "CLIENTS": 7400, "HTTP": 7402}
        listen = {f"PAXOSLEASE_LISTEN_{kind}": f"{self.address}:{port}" for kind, port in ports.items()}
        return self.start("paxoslease", more, **listen)

    def probe(self, name, kind):
        """The status of the answer to a probe. Like Kubernetes, it accepts any certificate."""
        container = self.container(name)
        get = container[kind]["httpGet"]
        port = next(port["containerPort"] for port in container["ports"] if port["name"] == get["port"])
        url = f"{get.get('scheme', 'HTTP').lower()}://{self.address}:{port}{get['path']}"
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(url, context=context, timeout=PATIENCE) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            return None


class Container:
    def __init__(self, pod, spec, words, values):
        user, group = pod.spec["securityContext"]["runAsUser"], pod.spec["securityContext"]["fsGroup"]
        self.name = f"{pod.name}/{spec['name']}"
        self.log = pod.folder / f"{spec['name']}.log"
        command = ["bwrap", "--unshare-pid", "--as-pid-1", "--ro-bind", "/usr", "/usr"]
        for folder in ("bin", "lib", "lib64"):
            command += ["--symlink", f"usr/{folder}", f"/{folder}"]
        command += ["--proc", "/proc", "--dev", "/dev", "--perms", "0755", "--dir", "/etc"]
        command += ["--ro-bind", pod.cluster.hosts, "/etc/hosts"]
        command += ["--ro-bind", pod.cluster.binary, "/entrypoint", "--clearenv"]
        for key, value in values.items():
            command += ["--setenv", key, value]
        for mount in spec["volumeMounts"]:
            kind = "--ro-bind" if mount.get("readOnly") else "--bind"
            command += ["--perms", "0755", "--dir", os.path.dirname(mount["mountPath"])]
            command += [kind, pod.folder / mount["name"], mount["mountPath"]]
        command += ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={group}"]
        command += ["--bounding-set=-all", "--no-new-privs", *words]
        read, write = os.pipe()
        command[1:1] = ["--info-fd", str(write)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[write]
            )
        os.close(write)
        with open(read) as info:
            self.first = json.loads(info.read())["child-pid"]

    def kill(self, signal):
        """To the first process of the container. A SIGKILL ends all of them."""
        if self.process.poll() is None:
            os.kill(self.first, signal)

    def end(self):
        """Waits for the end of its last process, and returns its exit code."""
        try:
            return self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} does not end:\n{self.text()}") from None

    def is_running(self):
        return self.process.poll() is None

    def text(self):
        return self.log.read_text()


def expanded(text, values):
    """As Kubernetes does: an unknown variable stays as it is."""
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)
