#!/usr/bin/env python3
"""Installs and runs what `cargo xtask package` built, by the commands of docs/install.md.

The Debian package and the tarball go into a clean Debian that boots in a container. The image runs in
Podman. Both have networks of their own. Needs root. Everything is in target/packages.
"""

import argparse
import contextlib
import gzip
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
BUILT = REPOSITORY / "target" / "package"
WORK = REPOSITORY / "target" / "packages"
VERSION = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]

SUITE = platform.freedesktop_os_release()["VERSION_CODENAME"]
"""Debian as the binary was built on, since the binary needs that C library or a newer one."""

PATIENCE = 300
"""No command takes as many seconds, except the download of Debian on a slow network."""

IMAGE_BYTES_MAX = 25_000_000

NODE = """\
cell = "tried"
node = 1
data_dir = "/var/lib/paxoslease"
peers.1 = "{host}:7401"
"""
"""A cell of one."""

NOT_FOR_US = ["initial-upload-closes-no-bugs", "copyright-without-copyright-notice"]
"""What lintian asks of a package in Debian's archive: a bug report, and a year of copyright."""


def snippets(section):
    """The commands of this section of docs/install.md, block by block."""
    page = (REPOSITORY / "docs" / "install.md").read_text()
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    return re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


def run(script, *prefix, folder=BUILT, fails=False):
    """Plays a script, behind a prefix that enters another system. Returns its output."""
    command = [*map(str, prefix), "sh", "-euc", script]
    print(f"$ {script.strip()}", flush=True)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=folder, timeout=PATIENCE, text=True, **streams)
    if done.stdout:
        print(re.sub("^", "  ", done.stdout.rstrip(), flags=re.M), flush=True)
    if (done.returncode != 0) != fails:
        sys.exit(f"exit code {done.returncode}; in {folder}:\n  {shlex.join(command)}")
    return done.stdout


def must(what, holds):
    if not holds:
        sys.exit(f"not true: {what}")


def hashes():
    """SHA256SUMS names every file, and each is as built."""
    (check,) = snippets("Verify what you downloaded")
    checked = run(check).split()[::2]
    files = sorted(file.name for file in BUILT.iterdir() if file.name != "SHA256SUMS")
    must(f"{files} have hashes", [name.rstrip(":") for name in checked] == files)


def sbom():
    """The list of components can be read, and has the crates of the binary."""
    document = json.loads((BUILT / f"paxoslease-{VERSION}-x86_64-linux.cdx.json").read_text())
    form = (document["bomFormat"], document["specVersion"])
    must("it is CycloneDX 1.5", form == ("CycloneDX", "1.5"))
    versions = {part["name"]: part["version"] for part in document["components"]}
    lock = (REPOSITORY / "Cargo.lock").read_text()
    rustls = re.search(r'^name = "rustls"\nversion = "(.*)"', lock, re.M)[1]
    must("it has rustls", versions.get("rustls") == rustls)
    ours = {name: version for name, version in versions.items() if name.startswith("paxoslease-")}
    must("it has our crates", {"paxoslease-core", "paxoslease-server"} <= ours.keys())
    must(f"our crates have version {VERSION}", set(ours.values()) == {VERSION})
    must("it names no folder of this machine", str(REPOSITORY) not in json.dumps(document))
    print(f"  {len(versions)} components, rustls {rustls}, ours {VERSION}")


class Debian:
    """A clean Debian with systemd, in a folder. The artefacts are in /packages."""

    def __init__(self):
        archive = WORK / f"{SUITE}.tar"
        if not archive.exists():
            # From where this machine itself gets its packages.
            of_main = "'Created-By: Packages' 'Origin: Debian' 'Component: main'"
            ask = f"apt-get indextargets --format '$(SITE)' {of_main} 'Codename: {SUITE}'"
            mirrors = run(ask).split()
            must("apt knows a mirror (if not, run apt-get update)", mirrors)
            made = archive.with_suffix(".new.tar")
            options = "--quiet --variant=minbase --include=systemd,systemd-sysv"
            run(f"mmdebstrap {options} {SUITE} {made} {mirrors[0]}")
            made.rename(archive)
        self.root = WORK / "root"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        (WORK / "next").mkdir(exist_ok=True)
        run(f"tar --extract --file {archive} --directory {self.root}")
        # As if the user said yes.
        (self.root / "etc/apt/apt.conf.d/yes").write_text('APT::Get::Assume-Yes "true";\n')
        self.nspawn = ["systemd-nspawn", "--quiet", f"--directory={self.root}", "--private-network"]
        self.nspawn += ["--register=no", "--keep-unit", f"--bind-ro={BUILT}:/packages"]
        self.nspawn += [f"--bind-ro={WORK / 'next'}:/next"]

    def without_systemd(self, script):
        """Plays a script in it while no init runs, as a chroot would."""
        return run(script, *self.nspawn, "--pipe", "--chdir=/packages", "--")

    @contextlib.contextmanager
    def booted(self):
        """A function that plays scripts in it while systemd runs."""
        path = WORK / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(path))
            notify.settimeout(PATIENCE)
            command = [*self.nspawn, "--boot", "--notify-ready=yes", "--kill-signal=SIGRTMIN+3"]
            with open(WORK / "boot.log", "wb") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                environment = os.environ | {"NOTIFY_SOCKET": str(path)}
                print(f"$ {shlex.join(command)}", flush=True)
                machine = subprocess.Popen(command, env=environment, **streams)
            try:
                said = ""
                while "READY=1" not in said:
                    said += notify.recv(4096).decode() + "\n"
                leader = re.search(r"^X_NSPAWN_LEADER_PID=(\d+)", said, re.M)[1]
                enter = ["nsenter", "--target", leader, "--all", "env", "--ignore-environment"]
                enter += ["--chdir=/packages", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
                yield lambda script, **options: run(script, *enter, **options)
            finally:
                machine.terminate()
                machine.wait(PATIENCE)

    def traces(self):
        """Paths with our name in them, below the root."""
        found = self.root.rglob("*paxoslease*")
        return sorted(str(path.relative_to(self.root)) for path in found)


def tarball():
    """It has what it should, and its binary runs on a clean system."""
    (install,) = snippets("Tarball")
    debian = Debian()
    shutil.copy(BUILT / f"paxoslease-{VERSION}-x86_64-linux.tar.gz", debian.root / "srv")
    said = debian.without_systemd(f"cd /srv\n{install}")
    must("it prints its version", f"paxoslease {VERSION}" in said.splitlines())
    folder = debian.root / f"srv/paxoslease-{VERSION}-x86_64-linux"
    names = "README.md LICENSE-MIT LICENSE-APACHE docs/install.md deploy/node.toml".split()
    for name in names:
        must(f"it has {name}", (folder / name).read_bytes() == (REPOSITORY / name).read_bytes())
    for name in ["service", "sysusers"]:
        must(f"it has the {name}", (folder / f"deploy/systemd/paxoslease.{name}").exists())
    share = debian.root / "usr/local/share"
    pages = {page.name: gzip.decompress(page.read_bytes()) for page in share.glob("man/man1/*")}
    must("the manual has a page on serve", b"data_dir" in pages["paxoslease-serve.1.gz"])
    completions = ["bash-completion/completions/paxoslease", "zsh/site-functions/_paxoslease"]
    for name in [*completions, "fish/vendor_completions.d/paxoslease.fish"]:
        must(f"{name} completes --probe", "probe" in (share / name).read_text())
    debian.without_systemd(f"bash -n /usr/local/share/{completions[0]}")


def debian():
    """Installs, starts, upgrades, removes and purges the package on a clean system."""
    package = f"paxoslease_{VERSION}-1_amd64.deb"
    install, start, upgrade, remove, purge = snippets("Debian")
    run(f"lintian --fail-on warning --suppress-tags {','.join(NOT_FOR_US)} {package}")
    shutil.rmtree(WORK / "next", ignore_errors=True)
    (WORK / "next").mkdir()
    deb = "cargo deb --quiet --package paxoslease-cli --no-build --deb-revision 2"
    run(f"{deb} --output {WORK / 'next'}", folder=REPOSITORY)
    debian = Debian()

    # Where no systemd runs, the scripts do not fail.
    debian.without_systemd(f"dpkg --install {package}; id paxoslease; dpkg --purge paxoslease")
    must("nothing is left", debian.traces() == [])

    with debian.booted() as play:
        play(install)
        play("dpkg --verify paxoslease; systemd-analyze verify --man=no paxoslease.service")
        state = play("systemctl is-enabled paxoslease || systemctl is-active paxoslease", fails=True)
        must("it is neither enabled nor started", state.split() == ["disabled", "inactive"])
        installed = play("dpkg --listfiles paxoslease").split()
        for place in [
            "bin/paxoslease",
            "share/man/man1/paxoslease-lock.1.gz",
            "share/bash-completion/completions/paxoslease",
            "share/zsh/vendor-completions/_paxoslease",
            "share/fish/vendor_completions.d/paxoslease.fish",
        ]:
            must(f"it has {place}", f"/usr/{place}" in installed)

        # The sample. The service fails once, and its log says why.
        play("systemctl start paxoslease", fails=True)
        state = play("systemctl show --property=ActiveState,NRestarts paxoslease").split()
        must("it is not tried again", state == ["NRestarts=0", "ActiveState=failed"])
        why = "cannot read /etc/paxoslease/node-1.pem"
        must("the log names the file", why in play("journalctl --unit paxoslease --output cat"))

        # The user edits it, and the service runs. A lease of ten minutes is taken.
        configuration = debian.root / "etc/paxoslease/node.toml"
        configuration.write_text(NODE.format(host="127.0.0.1"))
        play(start)
        play("systemctl reload paxoslease")
        as_any_user = "runuser -u nobody -- paxoslease"
        play(f"{as_any_user} lock jobs/nightly --keep 10m -- true")
        owner = play("stat --format '%U %a' /var/lib/paxoslease")
        must("the data is its own", owner == "paxoslease 700\n")
        before = play("systemctl show --property=MainPID paxoslease")
        lease = play(f"{as_any_user} get jobs/nightly --json")

        play(upgrade.replace("./", "/next/"))
        version = play("dpkg-query --show --showformat '${Version}' paxoslease")
        must("it is upgraded", version == f"{VERSION}-2")
        after = play("systemctl is-active paxoslease; systemctl show --property=MainPID paxoslease")
        must("the new binary runs", before not in after)
        must("the edited file stays", configuration.read_text() == NODE.format(host="127.0.0.1"))
        fence = json.loads(lease)["fence"]
        kept = json.loads(play(f"{as_any_user} get jobs/nightly --json"))
        must("the lease survives", kept["fence"] == fence)

        play(remove)
        play("systemctl is-active paxoslease", fails=True)
        left = ["etc/paxoslease/node.toml", "var/lib/paxoslease/snapshot"]
        must("configuration and data stay", all((debian.root / name).exists() for name in left))
        must("the binary is gone", not (debian.root / "usr/bin/paxoslease").exists())
        play(purge)
        must("nothing is left", debian.traces() == [])


def image():
    """Runs the image with a read-only root, as any user, on a network with a name server."""
    load, start, stop = (text.replace("docker", "podman") for text in snippets("Container"))
    archive = BUILT / f"paxoslease-{VERSION}-x86_64-image.tar"
    size = archive.stat().st_size
    print(f"  {size / 1e6:.1f} MB")
    must(f"it has at most {IMAGE_BYTES_MAX} bytes", size <= IMAGE_BYTES_MAX)
    folder = WORK / "podman"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # Podman needs neither systemd nor control groups nor a file system driver for this, and no
    # right to raise limits.
    os.environ["DISABLE_HC_SYSTEMD"] = "true"
    (folder / "containers.conf").write_text(
        '[containers]\ncgroups = "disabled"\ndns_servers = ["127.0.0.1"]\nlog_driver = "k8s-file"\n'
        'default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n'
        f'tmp_dir = "{folder}/tmp"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    os.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
    os.environ["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")
    # A name counts as another machine.
    node = NODE.format(host="node-1.test") + "listen.allow_plaintext = true\n"
    (folder / "node.toml").write_text(node)
    (folder / archive.name).symlink_to(archive)
    # crun refuses a machine with both versions of control groups, so it sees the newer one only.
    setup = "ip link set lo up; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec python3 -B $0"
    names = subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-ec", setup, HERE / "dns.py"], stdout=subprocess.PIPE
    )
    enter = ["nsenter", "--net", "--mount", "--target", str(names.pid), f"--wd={folder}"]
    try:
        must("the name server runs", names.stdout.readline() == b"listening\n")

        def play(script, **options):
            return run(script, *enter, folder=folder, **options)

        play(load)
        labels = play(f"podman image inspect paxoslease:{VERSION} --format '{{{{json .Labels}}}}'")
        label = json.loads(labels)["org.opencontainers.image.version"]
        must("a label has the version", label == VERSION)
        create, status = start.split("podman exec", 1)
        try:
            ready = ["ready=true", *enter, "podman", "logs", "--follow", "paxoslease"]
            play(f"{create.strip()} serve --config /etc/paxoslease/node.toml --new-cell")
            wait_for_line(*ready)
            play("podman stop paxoslease; podman rm paxoslease")
            play(create)
            wait_for_line(*ready)
            inside = "podman exec paxoslease paxoslease"
            play(f"podman exec{status}")
            play("podman healthcheck run paxoslease")
            health = inspect(play, "{{.State.Health.Status}} {{.State.Pid}}")
            must("it is healthy", health[0] == "healthy")
            process = Path(f"/proc/{health[1]}/status").read_text()
            must("it runs as user 65532", re.search(r"^Uid:(\t65532){4}$", process, re.M))
            said = play(f"{inside} man --out /usr/share/man", fails=True)
            must("its root is read-only", "Read-only file system" in said)
            play(f"{inside} acquire jobs/nightly --ttl 1s")
            # The node itself listens for peers at a name that only the name server knows.
            play(f"{inside} status --endpoint node-1.test:7400")
            play(f"{inside} status --endpoint node-2.test:7400", fails=True)
            play(stop)
            must("it stops by itself", inspect(play, "{{.State.ExitCode}}") == ["0"])
            must("it stops cleanly", "the snapshot lets" in play("podman logs paxoslease"))
        finally:
            play("podman rm --force --volumes paxoslease")
    finally:
        names.terminate()
        names.wait(PATIENCE)


def wheel():
    """Installs the wheel into an empty environment and asks a cell of the packaged binary."""
    (install,) = snippets("Python")
    folder = WORK / "python"
    shutil.rmtree(folder, ignore_errors=True)
    run(f"{shlex.quote(sys.executable)} -m venv {folder}")
    binary = REPOSITORY / "target/packaging/tree/bin/paxoslease"
    dev = [binary, "dev", "--nodes", "1", "--json", "--port", "0"]
    cell = subprocess.Popen(dev, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        described = cell.stdout.readline()
        must("a cell runs", described)
        endpoint = json.loads(described)["nodes"][0]["listen"]["clients"]
        path = f"PATH={folder / 'bin'}:{os.environ['PATH']}"
        said = run(install, "env", path, f"PAXOSLEASE_ENDPOINTS={endpoint}")
        must("the cell is ready", said.splitlines()[-1] == "True")
    finally:
        cell.terminate()
        cell.wait(PATIENCE)


def inspect(play, template):
    return play(f"podman inspect paxoslease --format '{template}'").split()


def wait_for_line(text, *command):
    """Reads the output of a command up to a line with this text, and ends it."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **streams) as process:
        for line in process.stdout:
            print(f"  {line}", end="", flush=True)
            if text in line:
                process.kill()
                return
    sys.exit(f"it ended without {text}: {shlex.join(command)}")


TRIES = [hashes, sbom, tarball, debian, image, wheel]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    names = [part.__name__ for part in TRIES]
    parser.add_argument("--only", choices=names, help="tries this and nothing else")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    for part in TRIES:
        if args.only in (None, part.__name__):
            started_at = time.monotonic()
            print(f"--- {part.__name__}", flush=True)
            part()
            print(f"ok {part.__name__}, {time.monotonic() - started_at:.1f} s", flush=True)


if __name__ == "__main__":
    main()
