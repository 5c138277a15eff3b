"""consumerOffset.json of large tables: made in steps, complete, and never behind a deletion."""

from pathlib import Path

import pytest

from ringmq.broker.control_wiring import saved_by
from ringmq.broker.tables.offsets import DISCOVER_MAX, STEP_KEYS
from ringmq.broker.tables.persistence import Persistence
from ringmq.fastjson.reader import read_config
from ringmq.remoting.codes import RequestCode
from ringmq.store.config_files import encode_config, load_config
from tests.broker.fakes import START_MS, Harness, make_harness
from tests.operations import operations


@pytest.fixture
def harness() -> Harness:
    harness = make_harness()
    for number in range(4 * STEP_KEYS):
        harness.broker.offsets.put(f"G{number % 7}", f"Stray{number}", number % 3, number, START_MS)
    harness.make_topic("T")
    harness.broker.offsets.put("G", "T", 1, 12, START_MS)
    return harness


def saved(root: Path) -> dict[str, dict[int, int]]:
    table = load_config(root, "consumerOffset.json")["offsetTable"]
    assert isinstance(table, dict)
    return table


class SteppedPersistence(Persistence):
    """Persistence that runs one step a turn."""

    def __init__(self, root: Path, harness: Harness) -> None:
        super().__init__(root, saved_by(harness.broker))
        self._turn_clock.advance = lambda steps, limit_ms: step(steps)  # type: ignore[method-assign,assignment,return-value]


def step(steps: object) -> object:
    try:
        next(steps)  # type: ignore[call-overload]
    except StopIteration as end:
        return end.value
    return None


def test_the_file_is_made_in_steps_and_is_stocks_text(tmp_path: Path, harness: Harness) -> None:
    persistence = SteppedPersistence(tmp_path, harness)
    persistence.save_offsets_if_due(START_MS)
    count = 0
    while persistence.is_saving:
        assert operations(persistence.save_some) < 60_000
        count += 1
    assert count >= 5
    text = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert encode_config("consumerOffset.json", read_config(text)) == text
    assert len(saved(tmp_path)) == 4 * STEP_KEYS + 1
    assert not harness.broker.offsets.dirty


def test_offsets_that_pulls_have_put_are_looked_up_in_steps(
    tmp_path: Path, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[int] = []
    offset_keys = harness.plane.offset_keys

    def counted(first: int, count_max: int | None = None) -> list[tuple[int, int]]:
        found = offset_keys(first, count_max)
        looked_up.append(len(found))
        return found

    harness.make_topic("Wide", queues=3000)
    found = [harness.broker.tables.slot("Wide", queue_id) for queue_id in range(3000)]
    slots = [slot for slot in found if slot is not None]
    group_id = harness.plane.group_find("G")
    assert group_id is not None and len(slots) == 3000
    harness.plane.offset_table.update({(group_id, slot): 7 for slot in slots})
    monkeypatch.setattr(harness.plane, "offset_keys", counted)
    persistence = SteppedPersistence(tmp_path, harness)
    persistence.save_offsets_if_due(START_MS)
    while persistence.is_saving:
        looked_up.clear()
        persistence.save_some()
        assert sum(looked_up) <= DISCOVER_MAX
    assert saved(tmp_path)["Wide@G"] == dict.fromkeys(range(3000), 7)


def test_what_changes_meanwhile_comes_into_the_next_file(tmp_path: Path, harness: Harness) -> None:
    persistence = SteppedPersistence(tmp_path, harness)
    persistence.save_offsets_if_due(START_MS)
    persistence.save_some()
    harness.broker.offsets.put("G0", "Stray0", 0, 777, START_MS)
    harness.broker.offsets.put("Late", "Stray", 0, 5, START_MS)
    while persistence.is_saving:
        persistence.save_some()
    assert "Stray@Late" not in saved(tmp_path)
    persistence.save_offsets_if_due(START_MS + 60_000)
    while persistence.is_saving:
        persistence.save_some()
    assert saved(tmp_path)["Stray@Late"] == {0: 5}
    assert saved(tmp_path)["Stray0@G0"] == {0: 777}


def test_a_stop_saves_all_at_once(tmp_path: Path, harness: Harness) -> None:
    persistence = SteppedPersistence(tmp_path, harness)
    persistence.save_offsets_if_due(START_MS)
    harness.broker.offsets.put("Late", "Stray", 0, 5, START_MS)
    persistence.save_offsets()
    assert saved(tmp_path)["Stray@Late"] == {0: 5}
    assert not persistence.is_saving


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path, harness: Harness) -> None:
    (tmp_path / "config").write_text("in the way")
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    with pytest.raises(OSError, match="File exists"):
        persistence.save_offsets()
    (tmp_path / "config").unlink()
    persistence.save_offsets()
    assert len(saved(tmp_path)) == 4 * STEP_KEYS + 1


def test_queues_of_a_deleted_topic_go_after_its_offsets_have_left_the_file(tmp_path: Path, harness: Harness) -> None:
    persistence = SteppedPersistence(tmp_path, harness)
    persistence.save_offsets()
    assert "T@G" in saved(tmp_path)
    persistence.save_offsets_if_due(START_MS + 60_000)
    harness.broker.offsets.put("G0", "Stray0", 0, 1, START_MS)
    persistence.save_offsets_if_due(START_MS + 120_000)
    assert persistence.is_saving, "a text that still has the offsets"
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    for _ in range(2):
        persistence.remove_deleted(START_MS + 1000)
    assert not harness.store.deleted
    for _ in range(20):
        persistence.remove_deleted(START_MS + 1000)
        persistence.save_some()
        if harness.store.deleted:
            break
    assert harness.store.deleted == ["T"]
    assert "T@G" not in saved(tmp_path)
