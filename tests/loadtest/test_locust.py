"""The locust users: thresholds, the run with a broker of its own, and that the waits of 200 users overlap."""

import contextlib
import csv
import importlib.util
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringmq.loadtest.locust import main as runner
from ringmq.loadtest.locust.thresholds import EventStats, Thresholds, broken, parse_bounds
from tests.client.test_gevent import ANSWER_AFTER_S, SlowCluster
from tests.client.threaded_cluster import threaded_cluster

USERS = 200
# looked for and not imported: locust patches the process that imports it
needs_locust = pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="needs the extra loadtest")


def entry(
    event: str, *, name: str = "T", requests: int = 100, failures: int = 0, rate: float = 50.0, p99: float = 10.0
) -> EventStats:
    return EventStats(event, name, requests, failures, rate, p99)


FINE = (
    entry("send"),
    entry("send", name="U", p99=20.0),
    entry("pull", p99=5.0),
    entry("pull", name="T (slow)", p99=9000.0),
)


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [
        (Thresholds(), []),
        (Thresholds({"send": 20, "pull": 5}, {"send": 100}), []),
        (Thresholds({"send": 15}), ["send U: p99 20.0 ms is above 15 ms"]),
        (Thresholds({"send_batch": 15}), ["send_batch: none succeeded"]),
        (Thresholds({}, {"send": 101}), ["send: 100.0 a second is below 101"]),
        (Thresholds({}, {"pull": 51}), ["pull: 50.0 a second is below 51"]),
    ],
)
def test_what_is_not_reached_is_said(thresholds: Thresholds, words: Sequence[str]) -> None:
    found = broken(thresholds, FINE)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_failures_are_bound_by_their_share() -> None:
    stats = [entry("send", failures=3), entry("pull")]
    assert broken(Thresholds(error_rate_max=0.015), stats) == []
    assert broken(Thresholds(error_rate_max=0.01), stats) == ["3 of 200 requests failed: 1.50% is above 1.00%"]
    assert broken(Thresholds({"send": 5000}), [entry("send", failures=100)])[0].startswith("send: none succeeded")
    assert broken(Thresholds(error_rate_max=1.0), []) == ["nothing was requested"]


def test_bounds_name_the_option_that_is_wrong() -> None:
    assert parse_bounds(["send=50, pull=1.5", ""], "--x") == {"send": 50, "pull": 1.5}
    for text in ("send", "sned=5", "send=-1", "send=fast", "send=inf", "send=nan"):
        with pytest.raises(ValueError, match="--x: "):
            parse_bounds([text], "--x")


def test_what_is_behind_the_border_goes_to_locust(tmp_path: Path) -> None:
    options = runner.parse(["--users", "5", "--kinds", "ProduceUser,MixedUser", "--", "--rate", "3"])
    words = runner.command_of(options, "127.0.0.1:1")
    assert words[-4:] == ["--rate", "3", "ProduceUser", "MixedUser"]
    assert words[words.index("--users") + 1] == "5"
    for wrong in (["--users", "0"], ["--", "--topic", "T"], ["--", "--topic=T"]):
        with pytest.raises(SystemExit):
            runner.parse(wrong)


def rows(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Locust's CSV by event and name."""
    with (folder / "locust_stats.csv").open() as file:
        return {(row["Type"], row["Name"]): row for row in csv.DictReader(file)}


@needs_locust
def test_every_kind_of_user_runs_and_a_broken_threshold_is_the_exit_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = ["--users", "8", "--spawn-rate", "100", "--run-time", "8s", "--folder", str(tmp_path), "--topic", "Orders"]
    status = runner.main([*own, "--", "--rate", "40", "--batch", "4", "--slow-ms", "20", "--p99-ms-max", "send=0.001"])
    said = capfd.readouterr()
    assert status == 3, said.err
    assert "threshold broken: send Orders: p99" in said.err
    assert "Traceback" not in said.err
    found = rows(tmp_path)
    for event in ("send", "send_batch", "pull", "end_to_end"):
        assert int(found[event, "Orders"]["Request Count"]) > 0, found
    assert int(found["pull", "Orders (slow)"]["Request Count"]) > 0
    assert all(row["Failure Count"] == "0" for row in found.values())
    assert "end_to_end" in (tmp_path / "report.html").read_text()
    assert not list(tmp_path.glob("store-*"))


@needs_locust
def test_several_processes_are_judged_together(tmp_path: Path) -> None:
    own = ["--users", "4", "--spawn-rate", "100", "--run-time", "6s", "--folder", str(tmp_path)]
    load = ["--rate", "20", "--processes", "2", "--p99-ms-max", "send=0.001"]
    options = runner.parse([*own, "--kinds", "ProduceUser", "--", *load])
    with contextlib.ExitStack() as stack, threaded_cluster(topics={runner.TOPIC: 4}) as cluster:
        with contextlib.suppress(OSError):  # somebody else has it: just as well
            stack.enter_context(socket.create_server(("127.0.0.1", 5557)))  # as a broker with metrics does
        done = subprocess.run(
            runner.command_of(options, cluster.namesrv), capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 3, done.stderr[-3000:]
    (told,) = (line for line in done.stderr.splitlines() if "threshold broken" in line)
    assert "send locust: p99" in told


@needs_locust
def test_a_task_that_raises_is_in_the_report_and_in_the_exit_status(tmp_path: Path) -> None:
    own = ["--users", "1", "--spawn-rate", "100", "--run-time", "6s", "--folder", str(tmp_path)]
    load = ["--rate", "20", "--body-bytes", "300000", "--batch", "16", "--error-rate-max", "1"]  # a batch over 4 MiB
    options = runner.parse([*own, "--kinds", "ProduceUser", "--", *load])
    with threaded_cluster(topics={runner.TOPIC: 4}) as cluster:
        done = subprocess.run(
            runner.command_of(options, cluster.namesrv), capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 3, done.stderr[-3000:]
    assert "times a user's task raised: body of" in done.stderr
    assert "threshold broken" not in done.stderr
    batches = rows(tmp_path)["send_batch", runner.TOPIC]
    assert int(batches["Failure Count"]) == int(batches["Request Count"]) > 0


@needs_locust
def test_the_waits_of_200_users_overlap(tmp_path: Path) -> None:
    own = ["--users", str(USERS), "--spawn-rate", str(USERS), "--run-time", "8s", "--folder", str(tmp_path)]
    load = ["--rate", "0", "--batch", "1", "--body-bytes", "16", "--error-rate-max", "0.3"]
    options = runner.parse([*own, "--kinds", "ProduceUser", "--", *load])
    with threaded_cluster(kind=SlowCluster, topics={runner.TOPIC: 4}) as cluster:
        done = subprocess.run(
            runner.command_of(options, cluster.namesrv), capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    sent = rows(tmp_path)["send", runner.TOPIC]
    requests, mean_s = int(sent["Request Count"]), float(sent["Average Response Time"]) / 1000
    elapsed_s = requests / float(sent["Requests/s"])
    assert requests >= USERS
    assert mean_s >= ANSWER_AFTER_S
    assert requests * ANSWER_AFTER_S > 4 * elapsed_s, f"{requests} sends in {elapsed_s:.1f} s"


@needs_locust
def test_impossible_options_are_refused_before_a_user_starts() -> None:
    words = [sys.executable, "-m", "locust", "-f", str(runner.LOCUSTFILE), "--headless", "--users", "1"]
    done = subprocess.run([*words, "--p99-ms-max", "sned=5"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode != 0
    assert "--p99-ms-max: 'sned=5' is not EVENT=NUMBER" in done.stderr
