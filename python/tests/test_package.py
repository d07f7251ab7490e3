"""The wheel and the source distribution, on a machine that has neither."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version

import pytest
from conftest import REPOSITORY

PACKAGES = REPOSITORY / "target" / "python" / "dist"


def package(ending):
    """What was written of the version under test."""
    (found,) = PACKAGES.glob(f"paxoslease-{version('paxoslease')}{ending}")
    return found


def run(*command, **environment):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    done = subprocess.run(
        [str(word) for word in command], env=environment, timeout=600, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def fresh(tmp_path):
    """The interpreter of an empty environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    return tmp_path / "venv" / "bin" / "python"


def ten_lines():
    page = (REPOSITORY / "docs" / "python.md").read_text()
    return re.search(r"^## Ten lines.*?^```python\n(.*?)^```", page, re.M | re.S)[1]


def test_the_wheel_needs_nothing_else(fresh, endpoints, tmp_path):
    wheel = package("-cp39-abi3-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    expected = ["paxoslease/py.typed", "paxoslease/_native.pyi", "paxoslease/aio.py"]
    assert set(expected) <= set(names) and any("licenses/LICENSE-MIT" in name for name in names)
    # Threads that end with the interpreter unwind by libgcc: another unwinder in the module crashes.
    zipfile.ZipFile(wheel).extract("paxoslease/_native.abi3.so", tmp_path)
    assert "libgcc_s.so.1" in run("readelf", "--dynamic", tmp_path / "paxoslease" / "_native.abi3.so")
    run(fresh, "-m", "pip", "install", "--no-index", wheel)
    said = run(fresh, "-c", ten_lines(), PAXOSLEASE_ENDPOINTS=endpoints)
    assert said.startswith("my turn, with fence ") and '"jobs/nightly" is held by' in said


@pytest.mark.timeout(600)
def test_the_source_distribution_builds(fresh, endpoints, tmp_path):
    sdist = package(".tar.gz")
    # Without optimisation: what matters is that nothing is missing. Not in the folder of other
    # builds: files of a source distribution are so old that cargo would take those for newer.
    options = {"MATURIN_PEP517_ARGS": "--profile dev", "CARGO_TARGET_DIR": str(tmp_path / "target")}
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, sdist, **options)
    (wheel,) = tmp_path.glob("*.whl")
    run(fresh, "-m", "pip", "install", "--no-index", wheel)
    assert run(fresh, "-c", ten_lines(), PAXOSLEASE_ENDPOINTS=endpoints).startswith("my turn")
