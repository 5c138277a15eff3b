"""Commands on the store of another user: an answer or an error that says what to do, never a traceback."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringmq.cli.doctor import doctor
from ringmq.cli.store_commands import store
from ringmq.cli.store_repair import repair
from ringmq.loadtest.load.running import RunningBroker
from tests.raw_client import RawClient
from tests.spark_bridge.made_store import held_by_stock
from tests.waiting import wait_dispatched

assert repair.name in store.commands
STRANGER = 4711
COMMANDS = (
    ("inspect",), ("inspect", "--records"), ("inspect", "--records", "--topic", "TopicA"),
    ("verify",), ("unserved",), ("timers",), ("repair", "--dry-run"),
)  # fmt: skip
CLOSED = ("", "lock", "ringmq.format", "commitlog", "consumequeue", "index", "config")
"""Parts of a store that others may not read, while they may read the rest."""


@pytest.fixture(scope="module")
def live() -> Iterator[Path]:
    """A store with a running broker, in a folder that all may search."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder, "store")
        broker = RunningBroker(root, {"autoCreateTopicEnable": True})
        try:
            with RawClient(broker.address) as client:
                assert client.send("TopicA", b"body").code == 0
            wait_dispatched(root)
            yield root
        finally:
            broker.stop()
            broker.close()


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """A store whose broker has ended."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder, "store")
        broker = RunningBroker(root, {"autoCreateTopicEnable": True})
        with RawClient(broker.address) as client:
            assert client.send("TopicA", b"body").code == 0
        assert broker.stop() == 0
        yield root
        broker.close()


@pytest.fixture(scope="module", autouse=True)
def all_is_imported(stopped: Path) -> None:
    """A stranger may not be able to read this Python."""
    for command in COMMANDS:
        assert run(stopped, command).exit_code in (0, 1)
    assert examined(stopped)


def run(root: Path, command: tuple[str, ...]) -> Result:
    return CliRunner().invoke(store, [command[0], str(root), *command[1:]])


def examined(root: Path) -> dict[str, dict[str, Any]]:
    """What `ringmq doctor` finds about the store and the network, by name."""
    done = CliRunner().invoke(doctor, ["--store", str(root), "--no-disk-trial", "-o", "json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return {each["name"]: each for each in json.loads(done.stdout) if each["area"] in ("store", "network")}


@contextlib.contextmanager
def as_a_stranger() -> Iterator[None]:
    """As a user who owns nothing: root would be let in everywhere."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        os.setegid(STRANGER)
        os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)


@contextlib.contextmanager
def open_but(root: Path, closed: str) -> Iterator[None]:
    """All of a store may be read but one part of it. A live broker may take files away meanwhile."""
    modes: dict[Path, int] = {}
    try:
        for path in [root, *root.rglob("*")]:
            with contextlib.suppress(FileNotFoundError):
                modes[path] = path.stat().st_mode
                path.chmod(0o755 if path.is_dir() else 0o644)
        (root / closed).chmod(0)
        yield
    finally:
        for path, mode in modes.items():
            with contextlib.suppress(FileNotFoundError):
                path.chmod(mode)


def output_of(root: Path, command: tuple[str, ...]) -> tuple[int, str]:
    """Status and output of a command that a stranger gives, and fail on a traceback."""
    with as_a_stranger():
        result = run(root, command)
    assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exc_info)
    return result.exit_code, result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("kind", ["live", "stopped"])
def test_what_a_stranger_may_not_read_is_named(
    request: pytest.FixtureRequest, kind: str, closed: str, command: tuple[str, ...]
) -> None:
    root: Path = request.getfixturevalue(kind)
    with open_but(root, closed):
        status, text = output_of(root, command)
    assert status in (0, 1), text
    assert status == 0 or re.search(f"^Error: ({root}|/dev/shm)/.*[pP]ermission denied", text), text


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_as_the_broker_makes_it_is_closed_to_strangers(live: Path, command: tuple[str, ...]) -> None:
    status, text = output_of(live, command)
    assert status == 1 and "permission denied; run this as the broker's user" in text and str(live) in text


@pytest.mark.parametrize("closed", CLOSED[1:])
@pytest.mark.parametrize("kind", ["live", "stopped"])
def test_doctor_does_not_guess_what_a_stranger_may_not_read(
    request: pytest.FixtureRequest, kind: str, closed: str
) -> None:
    root: Path = request.getfixturevalue(kind)
    with open_but(root, closed), as_a_stranger():
        found = examined(root)
    text = json.dumps(found)
    assert "did not stop cleanly" not in text or "that runs, or that did not stop cleanly" in text
    assert "give the file sizes" not in text and "none yet" not in text
    access = found["access"]
    assert (access["level"], access["advice"]) == ("fail", "run doctor as the broker's user, or as root")
    assert "Permission denied" in access["value"]
    if closed == "lock":
        assert (found["owner"]["level"], found["owner"]["value"][:7]) == ("warn", "unknown")
        assert f"{root}/lock" in access["value"]
        assert ("mark of a broker" in found["owner"]["value"]) == (kind == "live")
        assert "tail of the log" not in found and "lag" not in found
    else:
        assert found["owner"]["value"] == ("a live broker has it open" if kind == "live" else "nobody has it open")
        assert kind == "live" or f"{root}/{closed}" in access["value"]


def test_doctor_names_the_ports_of_a_store_that_it_may_not_look_at(live: Path) -> None:
    with open_but(live, "lock"), as_a_stranger():
        found = examined(live)
    taken = [each for each in found.values() if "perhaps in use by the broker of this store" in each["meaning"]]
    assert all(each["level"] == "warn" for each in taken)
    assert not [each for each in found.values() if each["area"] == "network" and each["level"] == "fail"]


def test_doctor_of_a_running_stock_broker_says_nothing_of_its_lag(stopped: Path) -> None:
    with held_by_stock(stopped):
        found = examined(stopped)
    assert found["owner"]["value"] == "a live broker has it open" and "lag" not in found


def test_a_repair_that_could_not_move_files_reads_nothing(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the log is read")

    monkeypatch.setattr("ringmq.store.repair.recover", begun)
    with open_but(stopped, "lock"):
        (stopped / "lock").chmod(0o666)
        stopped.chmod(0o777)
        status, text = output_of(stopped, ("repair",))
    assert status == 1 and f"Error: {stopped}/commitlog: permission denied; run this as the broker's user" in text
