"""Long commands say at their beginning what would fail at their end, and a missing picture is a line."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ringmq.loadtest.bench import main as bench
from ringmq.loadtest.bench.rows import BenchRow, Context, java_row
from ringmq.loadtest.bench.table import ROWS
from ringmq.loadtest.drills import ha_drill
from ringmq.loadtest.fuzz import main as fuzz
from ringmq.loadtest.growth import main as growth
from ringmq.loadtest.load import beforehand
from ringmq.loadtest.locust import main as locust
from ringmq.loadtest.matrix import main as matrix
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, STOCK, Measurement
from ringmq.loadtest.port import main as port
from ringmq.loadtest.sdk import main as sdk
from ringmq.loadtest.siege import main as siege
from ringmq.loadtest.spark import main as spark
from ringmq.loadtest.stock import StockError
from ringmq.loadtest.versions import main as versions

Command = Callable[[Sequence[str]], object]


def run_siege(arguments: Sequence[str]) -> object:
    return siege.main(list(arguments), standalone_mode=False)


def run_fuzz(arguments: Sequence[str]) -> object:
    return fuzz.main([*arguments, "--golden", "/"], standalone_mode=False)


def run_versions(arguments: Sequence[str]) -> object:
    python = Path(arguments[-1], "old", ".venv", "bin", "python")
    python.parent.mkdir(parents=True)
    python.touch()
    return versions.main(["--old", str(python.parents[2]), *arguments])


COMMANDS: list[tuple[Any, Command, str]] = [
    (bench, bench.main, "bench.json"),
    (growth, growth.main, "growth.md"),
    (matrix, matrix.main, "matrix.csv"),
    (spark, spark.main, "bench.md"),
    (sdk, sdk.main, "bench.json"),
    (versions, run_versions, "versions.json"),
    (siege, run_siege, "siege.json"),
    (fuzz, run_fuzz, "progress-1.json"),
    (locust, locust.main, "report.html"),
]


def forbid(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
    """End the test if the command begins its work."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    for name in names:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, begun)


WORK = ("context_of", "build_tools", "python_with", "Workbench", "RunningBroker", "run_siege", "fuzz_drivers")


@pytest.mark.parametrize(("module", "run", "name"), COMMANDS, ids=lambda value: getattr(value, "__name__", ""))
def test_results_that_could_not_be_written_end_a_command_before_its_work(
    module: Any, run: Command, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, module, *WORK)
    (tmp_path / name).mkdir()
    with pytest.raises(SystemExit) as ended:
        run(["--folder", str(tmp_path)])
    assert str(tmp_path / name) in str(ended.value) and "choose another --folder" in str(ended.value)


@pytest.mark.parametrize(("module", "run", "name"), COMMANDS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_full_disk_ends_a_command_before_its_work(
    module: Any, run: Command, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, module, *WORK)
    full = shutil.disk_usage(tmp_path)._replace(used=91, free=9)
    monkeypatch.setattr(beforehand.shutil, "disk_usage", lambda folder: full)
    with pytest.raises(SystemExit, match=r"% used.*, and a broker refuses sends from 90 % on: make room"):
        run(["--folder", str(tmp_path)])


def test_the_port_bench_looks_at_the_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, port, "build_tools")
    full = shutil.disk_usage(tmp_path)._replace(used=91, free=9)
    monkeypatch.setattr(beforehand.shutil, "disk_usage", lambda folder: full)
    with pytest.raises(SystemExit, match="make room"):
        port.main(["--folder", str(tmp_path)])


def test_files_of_an_earlier_run_keep_their_content(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("{}")
    beforehand.prepare_results(tmp_path, "bench.json", "bench.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert (tmp_path / "bench.json").read_text() == "{}"
    beforehand.prepare_results(tmp_path / "new" / "folder", "bench.json")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.fixture
def quick_bench(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A bench of one row that takes no time: the names of the systems that it has measured."""
    measured: list[str] = []

    def one_row(context: Context, system: str) -> Measurement:
        measured.append(system)
        return Measurement({RATE: 1000.0})

    row = BenchRow("one", "one row", RATE, "msg/s", (), None, alone=one_row)
    monkeypatch.setattr(bench, "rows_named", lambda names, groups: [row])
    return measured


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(beforehand, "find_spec", lambda name: None if name in modules else found(name))
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_a_bench_without_matplotlib_says_so_first_and_holds(
    quick_bench: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "matplotlib")
    (tmp_path / "bench.svg").write_text("of an earlier run")
    assert bench.main(["--quick", "--systems", RINGMQ, "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("there will be no picture: matplotlib is not installed; install ringmq[loadtest]")
    assert f"no picture {tmp_path / 'bench.svg'}" in said.out
    assert f"written: {tmp_path / 'bench.json'}\n" in said.out
    assert json.loads((tmp_path / "bench.json").read_text())["rows"][0]["systems"][RINGMQ]["counted"] == 1
    assert not (tmp_path / "bench.svg").exists(), "its figures are others"


def test_a_picture_that_matplotlib_cannot_draw_is_a_line(tmp_path: Path) -> None:
    said: list[str] = []

    def draw(path: Path) -> None:
        path.write_text("<svg")
        raise RuntimeError("no fonts")

    assert not beforehand.drawn(draw, tmp_path / "bench.svg", said.append)
    assert said == [f"no picture {tmp_path / 'bench.svg'}: RuntimeError: no fonts"]
    assert list(tmp_path.iterdir()) == []


def without_java(*_: object, **__: object) -> Any:
    raise StockError("`java` is not on PATH; stock RocketMQ needs a Java runtime (17 is tested)\nmore")


def test_without_java_ringmq_is_measured_and_the_first_line_says_why_alone(
    quick_bench: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "java_command", without_java)
    assert bench.main(["--quick", "--systems", f"{STOCK},{RINGMQ}", "--folder", str(tmp_path)]) == 0
    assert quick_bench == [RINGMQ]
    assert "without stock and the stock producer: `java` is not on PATH" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="nothing is left to measure without Java"):
        bench.main(["--quick", "--systems", STOCK, "--folder", str(tmp_path)])


def test_the_row_of_the_stock_producer_needs_java_beside_ringmq_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "java_command", lambda *_, **__: ["java"])
    monkeypatch.setattr(bench, "compile_java", without_java)
    rows = [ROWS[0], *(row for row in ROWS if row.run is java_row)]
    said: list[str] = []
    left, systems = bench.without_java(rows, [RINGMQ], tmp_path, said.append)
    assert java_row not in [row.run for row in left] and systems == [RINGMQ] and len(said) == 1
    plain = [row for row in ROWS if row.run is not java_row]
    assert bench.without_java(plain, [RINGMQ], tmp_path, said.append) == (plain, [RINGMQ])
    assert len(said) == 1


def test_the_spark_bench_needs_spark_and_java_before_it_fills_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, spark, "Workbench", "build_tools")
    monkeypatch.setattr(spark, "compile_sources", without_java)
    with pytest.raises(SystemExit, match="needs a JDK and the stock client: `java` is not on PATH"):
        spark.main(["--quick", "--folder", str(tmp_path)])
    hide(monkeypatch, "pyspark")
    with pytest.raises(SystemExit, match=r"the Spark bench needs pyspark, .*ringmq\[spark\]"):
        spark.main(["--quick", "--folder", str(tmp_path)])


def test_drawing_alone_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "matplotlib")
    with pytest.raises(SystemExit, match="--plot needs matplotlib, which is not installed"):
        matrix.main(["--plot", str(tmp_path / "cells.json"), "--folder", str(tmp_path)])


def test_an_old_checkout_without_a_core_is_refused_before_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, versions, "context_of")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ringmq'\" >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(SystemExit, match="cannot run a broker: ModuleNotFoundError: No module named 'ringmq'"):
        versions.main(["--old", str(tmp_path), "--folder", str(tmp_path / "results")])


def test_all_fuzzers_are_built_before_the_first_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    names = [driver.name for driver in fuzz.DRIVERS[:3]]

    def build(driver: Any, sources: Path, folder: Path) -> Path:
        steps.append(f"build {driver.name}")
        return folder / driver.name

    def run(driver: Any, program: Path, golden: Path, seed: int, inputs: int) -> dict[str, int]:
        steps.append(f"run {program.name}")
        return {"inputs": inputs}

    monkeypatch.setattr(fuzz, "build", build)
    monkeypatch.setattr(fuzz, "run", run)
    progress = fuzz.Progress(tmp_path / "progress.json", fresh=True)
    fuzz.fuzz_drivers(names, progress, tmp_path, tmp_path, 1, 10)
    assert steps == [f"build {name}" for name in names] + [f"run {name}" for name in names]


def test_a_drill_names_first_which_faults_this_machine_does_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        raise click.ClickException("the drill has begun")

    monkeypatch.setattr(ha_drill, "missing_for_network", lambda: "ip is missing")
    monkeypatch.setattr(ha_drill, "run_drill", begun)
    done = CliRunner().invoke(ha_drill.main, ["--rounds", "1"])
    assert "left out" in done.output.splitlines()[0] and done.output.splitlines()[-1] == "Error: the drill has begun"
    done = CliRunner().invoke(ha_drill.main, ["--rounds", "1", "--only", ha_drill.NEEDS_NETWORK[0]])
    assert done.exit_code == 1 and "no kind of fault is left" in done.output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SystemExit, match="Permission denied: results could not be written"):
        beforehand.prepare_results(tmp_path, "bench.json")
