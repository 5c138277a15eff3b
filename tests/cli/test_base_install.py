"""A base install: each part that needs an extra names the missing module and the extra, without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = (
    "cffi", "_cffi_backend", "lark", "msgspec", "numpy", "orjson", "h11", "psutil", "rich", "numba", "locust",
    "matplotlib", "pyarrow", "pyspark", "tqdm", "pandas", "polars", "opentelemetry", "prometheus_client",
)  # fmt: skip


def without(modules: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that has none of `modules`."""
    shut = f"import sys; sys.modules.update(dict.fromkeys({modules!r}))"
    command = [sys.executable, "-c", f"{shut}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def command_without(modules: tuple[str, ...], words: list[str]) -> str:
    done = without(modules, f"from ringmq.cli.main import main; main({words!r}, prog_name='ringmq')")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [["serve"], ["broker"], ["doctor"], ["store", "inspect", "STORE"], ["store", "unserved", "STORE"], ["top"],
     ["store", "verify", "STORE"], ["debug", "bundle"], ["bench"]],
)  # fmt: skip
def test_a_command_names_the_module_and_its_extra(words: list[str], store: Path) -> None:
    (said,) = command_without(EXTRAS, [str(store) if word == "STORE" else word for word in words]).splitlines()
    assert any(f" {module}" in said for module in ("cffi", "msgspec", "numpy", "psutil", "rich"))
    assert "install ringmq[broker]" in said
    assert "pip install '.[broker]'" in said


@pytest.mark.parametrize(
    ("module", "words"),
    [("psutil", ["doctor"]), ("numpy", ["store", "verify", "STORE"]), ("msgspec", ["serve"]), ("msgspec", ["namesrv"])],
)
def test_a_broker_part_that_is_missing_alone_is_named(module: str, words: list[str], store: Path) -> None:
    said = command_without((module,), [str(store) if word == "STORE" else word for word in words])
    assert f"needs {module}, which is not installed; install ringmq[broker]" in said


@pytest.mark.parametrize(
    ("code", "module", "extra"),
    [
        ("from ringmq.spark_bridge import scan", "pyarrow", "arrow"),
        ("from ringmq.spark_bridge import store_to_parquet", "pyarrow", "arrow"),
        ("from ringmq.spark_bridge import session", "pyspark", "spark"),
        ("from ringmq.spark_bridge import read", "pyspark", "spark"),
        ("import ringmq.client.observing.otel", "opentelemetry", "otel"),
        ("import ringmq.client.observing.prometheus", "prometheus_client", "prometheus"),
    ],
)
def test_an_import_names_the_module_and_its_extra(code: str, module: str, extra: str) -> None:
    done = without(EXTRAS, code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"needs {module}, which is not installed; install ringmq[{extra}]" in last
    assert "During handling" not in done.stderr
    assert "direct cause" not in done.stderr
