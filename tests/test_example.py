"""The example that `make run` shows: it counts right, it notices a difference, and it runs."""

import os
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import access_log_pipeline as example
import pytest
from progress import progress
from serving import READY

ROOT = Path(__file__).parents[1]
EXAMPLE = Path(example.__file__)


def test_the_source_file_is_what_its_page_says() -> None:
    counts = example.count_file(example.read_lines(example.DATA, None))
    assert (counts.lines, len(counts.clients)) == (10_000, 1_753)
    assert counts.by_status == Counter({"2xx": 9171, "3xx": 609, "4xx": 217, "5xx": 3})
    assert sum(counts.by_hour.values()) == 10_000


def test_a_difference_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = example.read_lines(example.DATA, 50)
    source, other = example.count_file(lines), example.count_file([*lines[:-1], lines[-1] + b" "])
    assert example.report(source, {"a": source})
    assert not example.report(source, {"a": source, "b": other})
    assert "DIFFERS" in capsys.readouterr().out


def test_a_line_without_a_time_is_refused() -> None:
    with pytest.raises(example.PipelineError, match="time stamp"):
        example.hour_of(b"no time here")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_pipeline_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--limit", "500", "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all three counts agree" in done.stdout
    assert "Traceback" not in done.stderr and "log level" not in done.stderr
    for step in (
        "starting a name server",
        "sending 500 lines",
        "consuming",
        "starting Spark",
        "reading",
        "stopping the",
    ):
        assert step in done.stdout
    assert "incubator" not in done.stderr


def test_a_long_step_is_shown_again_with_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    shown = threading.Event()
    far = iter(("", "7 of 9"))

    def how_far() -> str:
        text = next(far, "9 of 9")
        if text:
            shown.set()
        return text

    with progress("counting", how_far, interval_s=0.01):
        assert shown.wait(60)
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^ *\d+ s  ", "n s  ", line) for line in lines[:3]] == ["counting", "n s  counting", "n s  7 of 9"]


def test_a_command_shows_its_last_line_while_it_runs(tmp_path: Path) -> None:
    """The rest of its output is left out."""
    seen = tmp_path / "seen"
    script = f'echo first; echo second; until [ -e "{seen}" ]; do sleep 0.1; done; echo third'
    with subprocess.Popen([ROOT / ".ci/progress", "sh", "-c", script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if "second" in line)
        seen.touch()
        rest = running.stdout.read()
    assert re.fullmatch(r"\d+ s second", " ".join(line.split()))
    assert "third" not in rest
    assert running.returncode == 0


def test_a_command_that_fails_shows_all_its_output() -> None:
    done = subprocess.run([ROOT / ".ci/progress", "sh", "-c", "echo reason; exit 7"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "reason\n")


def test_the_commands_that_make_run_prints_at_its_end_work(tmp_path: Path) -> None:
    """On other ports and another store, because this machine may have a broker. tests/test_stream_example.py runs the
    third command.
    """
    lines = (ROOT / ".ci/next").read_text().replace(".venv/bin", str(Path(sys.executable).parent)).splitlines()
    serve, send_and_read, stream = [line.partition("  #")[0].strip() for line in lines if "/bin/" in line]
    server = serve.replace("/tmp/my-store", str(tmp_path / "store")) + " --port 0 --namesrv-port 0"
    with subprocess.Popen(shlex.split(server), stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            ready = next(match for line in broker.stdout if (match := READY.search(line)))
            environment = {**os.environ, "RINGMQ_NAMESRV": ready[1]}
            done = subprocess.run(
                send_and_read, shell=True, env=environment, capture_output=True, text=True, timeout=180
            )
        finally:
            broker.terminate()
            broker.communicate(timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "hello"), done.stdout + done.stderr
    assert (ROOT / stream.split()[1]).is_file()
