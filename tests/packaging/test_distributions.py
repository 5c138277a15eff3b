"""The source distribution has all that a build needs; what is built from it runs."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from ringmq.loadtest.load.running import remove_shared_memory
from ringmq.loadtest.stock import free_port
from tests.conformance.servers import RingmqProcess
from tests.native.elf import faults_of
from tests.plain_cc import compiler

ROOT = Path(__file__).parents[2]
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in Python 3.11.2


def run(words: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution, made from a copy of what git knows."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("sdist")
    for name in run(["git", "ls-files", "-z"], ROOT).split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "examples/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    run([sys.executable, "setup.py", "-q", "sdist", "-d", out], copy)
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        archive.extractall(out, **SAFELY)
    return next(path for path in out.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source]
    run(pip, out, RINGMQ_REQUIRE_NATIVE="1", CC=compiler(protected=True))
    return next(out.glob("*.whl"))


def test_the_source_distribution_has_the_c_core(source: Path) -> None:
    in_tree = {path.relative_to(ROOT) for path in (ROOT / "native/src").rglob("*.[ch]")}
    assert {path.relative_to(source) for path in (source / "native/src").rglob("*.[ch]")} == in_tree
    assert (source / "LICENSE").is_file()


def test_the_wheel_has_every_package_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {"/".join(name.split("/")[:2]) for name in names if name.startswith("ringmq/")}
    packages = {folder.parent.name for folder in ROOT.glob("*/__init__.py") if folder.parent.name != "tests"}
    assert {f"ringmq/{package}" for package in packages} <= tops
    assert not [name for name in names if name.startswith("tests/") or "/tests/" in name]
    parts = {name.split("/")[2] for name in names if name.startswith("ringmq/loadtest/") and name.count("/") > 2}
    assert parts == {"load", "measuring", "bench", "locust", "stock"}, "drills and their C stay in the checkout"
    folders = ["spark_bridge", "client", *(f"loadtest/{part}" for part in parts)]
    tracked = run(["git", "ls-files", *folders], ROOT).splitlines()
    beside = {name for name in tracked if not name.endswith((".py", ".md")) and (ROOT / name).is_file()}
    missing = {name for name in beside if f"ringmq/{name}" not in names and not name.startswith("spark_bridge/pyspark")}
    assert not missing, "what the code reads beside it"
    assert [name for name in names if name.startswith("ringmq/native/_native") and name.endswith(".so")]


STABLE = {
    "PyArg_UnpackTuple",
    "PyErr_Occurred",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyImport_ImportModule",
    "PyLong_FromLong",
    "PyLong_FromUnsignedLong",
    "PyLong_FromVoidPtr",
    "PyObject_CallMethod",
    "PyObject_Free",
    "PyObject_Malloc",
    "_Py_Dealloc",
    "_Py_NoneStruct",
}
"""Names of Python's stable ABI (docs.python.org/3/c-api/stable.html) that cffi's module needs."""


def test_the_core_needs_python_s_stable_abi_alone(wheel: Path, tmp_path: Path) -> None:
    """So one wheel serves Python 3.11 and later, and its tag says so."""
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        core = archive.extract("ringmq/native/_native.abi3.so", tmp_path)
    symbols = {line.split()[-1] for line in run(["nm", "-D", "--undefined-only", core], tmp_path).splitlines()}
    assert {name for name in symbols if name.startswith(("Py", "_Py"))} <= STABLE


def test_the_core_of_the_wheel_has_every_protection_and_no_run_path(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert faults_of(Path(archive.extract("ringmq/native/_native.abi3.so", tmp_path))) == []


def test_the_wheel_runs_where_nothing_else_of_the_project_is(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel], tmp_path)
    look = "import ringmq, ringmq.native as native; print(native.__file__); assert native.lib"
    look += f"; assert ringmq.__version__ == {wheel.name.split('-')[1]!r}"
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    assert run([sys.executable, "-c", look], tmp_path, **environment).startswith(str(tmp_path / "site"))
    help_text = run([sys.executable, "-m", "ringmq.cli.main", "serve", "--help"], tmp_path, **environment)
    assert "--namesrv-port" in help_text


def needed(requirements: Sequence[str], extra: str = "") -> Iterator[importlib.metadata.Distribution]:
    """The distributions that these requirements name, and what those name in turn."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found = importlib.metadata.distribution(requirement.name)
            yield found
            for more in ("", *requirement.extras):
                yield from needed(found.requires or (), more)


def clean_environment(folder: Path, wheel: Path, extra: str = "") -> Path:
    """A virtual environment with the wheel, and of this one's packages those alone that its metadata names."""
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-index", "--no-deps"]
    run([*pip, wheel], folder)
    (metadata,) = importlib.metadata.distributions(name="ringmq", path=[str(site)])
    for distribution in needed(metadata.requires or (), extra):
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin"


def test_a_clean_environment_has_all_that_sdk_broker_and_scans_need(wheel: Path, tmp_path: Path) -> None:
    """What is not named by the metadata is not there: the broker runs with the extra `broker`, the SDK with none, scans
    with `arrow`."""
    sdk, broker = clean_environment(tmp_path / "sdk", wheel), clean_environment(tmp_path / "broker", wheel, "broker")
    arrow = clean_environment(tmp_path / "arrow", wheel, "arrow")
    modules = "client, client.blocking, client.cluster"
    look = f"import {', '.join('ringmq.' + name for name in modules.split(', '))}; print(ringmq.client.__file__)"
    assert run([sdk / "python", "-I", "-c", look], tmp_path).startswith(str(tmp_path / "sdk"))
    told = subprocess.run([sdk / "ringmq", "serve"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.returncode != 0 and "ringmq[broker]" in told.stderr and "Traceback" not in told.stderr, told.stderr
    namesrv, store, metrics_port = f"127.0.0.1:{free_port()}", tmp_path / "store", free_port()
    options = ["--store", str(store), "--port", "0", "--namesrv-port", namesrv.split(":")[1]]
    options += ["--set", "diskMaxUsedSpaceRatio=95", "--set", f"metricsPromExporterPort={metrics_port}"]
    server = RingmqProcess(tmp_path / "home", "serve", *options, program=broker / "ringmq")
    try:
        run([sdk / "ringmq", "produce", "--namesrv", namesrv, "Greetings", "-m", "from a clean place"], tmp_path)
        read = ["consume", "--namesrv", namesrv, "Greetings", "--group", "g", "--from", "first", "--count", "1"]
        assert run([sdk / "ringmq", *read], tmp_path) == "from a clean place\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as answer:
            assert b"rocketmq_messages_in_total{" in answer.read()
        look = "print(scan(sys.argv[1], topics='Greetings').to_arrow().num_rows)"
        scan = f"import sys; from ringmq.spark_bridge import scan; {look}"
        assert run([arrow / "python", "-I", "-c", scan, store], tmp_path) == "1\n"
        server.stop()
        run([broker / "ringmq", "store", "verify", store], tmp_path)
        rows = run([broker / "ringmq", "bench", "--help"], tmp_path)
        assert "64x16" in rows and "repl-64x16" not in rows, "rows of replication need the delay link of a checkout"
    finally:
        server.kill()
        remove_shared_memory(store)
