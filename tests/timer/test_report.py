"""`ringmq store timers` over the recorded stores and over stores without timers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from ringmq.cli.main import main
from ringmq.timer.timer_checkpoint import TimerCheckpoint, read_timer_checkpoint
from tests.archives import unpack

GOLDEN = Path(__file__).parents[1] / "golden"
STOPPED_S = 1795208676
"""Time of the clean stop of the store below. Slots from long ago count as delivered."""
RECORDS = 1302
"""Records of its timer topic."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("time.time", lambda: STOPPED_S)
    unpack(GOLDEN / "timer" / "store-clean-stop-pending.tar.xz", tmp_path)
    return tmp_path


def timers(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", "timers", *map(str, arguments)])


def test_a_row_for_each_topic(store: Path) -> None:
    result = timers(store, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["messages"], found["deletes"], found["not_in_the_wheel"]) == (28, 0, 0)
    (row,) = found["topics"]
    assert (row["topic"], row["messages"]) == ("GT", 28)
    assert found["delivered_before"] == "2026-11-20 21:04:28.000+00:00" <= row["first_due"] <= row["last_due"]
    table = timers(store).output
    assert "messages: 28" in table and "GT     28" in table


def test_messages_behind_the_newest_unit_are_counted(store: Path) -> None:
    """A killed broker may have stored messages of the timer topic that have no unit yet."""
    for path in (store / "timerlog").iterdir():
        if int(path.name) == 61440:
            data = path.read_bytes()
            path.write_bytes(data[: 67992 - 61440 - 2 * 52] + bytes(len(data) - (67992 - 61440) + 2 * 52))
    found = json.loads(timers(store, "-o", "json").output)
    assert (found["messages"], found["not_in_the_wheel"], found["log_end"]) == (26, 2, 67992 - 2 * 52)


@pytest.mark.parametrize("queue_offset", [0, 1 << 40])
def test_a_checkpoint_beyond_the_timer_topic_hides_no_message(store: Path, queue_offset: int) -> None:
    """Wheel and log are lost, so no unit tells what was in the wheel."""
    for path in (*(store / "timerlog").iterdir(), store / "timerwheel"):
        path.unlink()
    checkpoint = replace(read_timer_checkpoint(store) or TimerCheckpoint(), queue_offset=queue_offset)
    (store / "config" / "timercheck").write_bytes(checkpoint.encode_file())
    found = json.loads(timers(store, "-o", "json").output)
    assert (found["messages"], found["not_in_the_wheel"]) == (0, RECORDS)


def test_a_store_without_timers_has_no_row(tmp_path: Path) -> None:
    unpack(GOLDEN / "store-pop" / "store-pop.tar.xz", tmp_path)
    result = timers(tmp_path / "store-pop", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["messages"], found["slots_in_use"], found["topics"]) == (0, 0, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--set", "mappedFileSizeTimerLog=20480"], "has 10240 bytes, not 20480 as configured"),
        (["--set", "mappedFileSizeTimerLog=x"], "mappedFileSizeTimerLog = x is not a whole number"),
        (["--set", "timerPrecisionMs=300"], "timerPrecisionMs is 300, must be one of 100, 200, 500, 1000"),
    ],
)
def test_settings_that_do_not_fit_are_named(store: Path, settings: list[str], message: str) -> None:
    result = timers(store, *settings)
    assert result.exit_code == 1
    assert message in result.output and "Traceback" not in result.output


def test_damaged_files_are_named(store: Path) -> None:
    (store / "timerwheel").write_bytes(b"short")
    result = timers(store)
    assert result.exit_code == 1
    assert "timerwheel has 5 bytes, not 38707200" in result.output
