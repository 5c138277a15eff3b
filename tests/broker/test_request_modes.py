"""The table of request modes: stock's file byte for byte, damage, room, and the order of file and answer."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.requests.turns import finish
from ringmq.broker.tables import request_modes
from ringmq.broker.tables.loading import load_into, load_modes
from ringmq.broker.tables.request_modes import FILE, MODES_MAX, STEP_PAIRS, RequestModeTable
from ringmq.remoting.assignment_bodies import MODE_MAP, POP, PULL, RequestMode
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import MAX_FRAME_BYTES
from ringmq.remoting.errors import RequestError
from ringmq.remoting.names import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from ringmq.store.config_files import ConfigFileError, persist_text
from ringmq.store.recovery import RecoveredStore
from tests.broker.fakes import FakePlane

STOCK_STORE = Path(__file__).parents[1] / "golden" / "store-pop" / "store-pop.tar.xz"


def table_of(pairs: int, groups_of_a_topic: int = 3) -> RequestModeTable:
    table = RequestModeTable()
    for number in range(pairs):
        table.put(RequestMode(f"T{number // groups_of_a_topic}", f"G{number % groups_of_a_topic}", POP, number))
    return table


def stock_text() -> str:
    with tarfile.open(STOCK_STORE) as archive:
        name = next(name for name in archive.getnames() if name.endswith(f"config/{FILE}"))
        file = archive.extractfile(name)
        assert file is not None
        return file.read().decode()


def test_the_file_of_a_stock_broker_is_written_as_it_was_read() -> None:
    text = stock_text()
    table = RequestModeTable()
    table.load(json.loads(text))
    assert len(table) >= 2 and not table.dirty
    assert table.file_text() == text


@pytest.mark.parametrize("pairs", [0, 1, 3, 4, STEP_PAIRS - 1, STEP_PAIRS, STEP_PAIRS + 1, 3 * STEP_PAIRS])
def test_file_and_answer_have_every_mode_in_parts(pairs: int) -> None:
    table = table_of(pairs)
    assert len(table) == pairs == len(list(table))
    text = table.file_text()
    whole: dict[str, dict[str, Any]] = {}
    for mode in table:
        whole.setdefault(mode.topic, {})[mode.group] = mode.to_json()
    assert json.loads(text) == json.loads(finish(table.body_steps())) == {MODE_MAP: whole}
    again = RequestModeTable()
    again.load(json.loads(text))
    assert list(again) == list(table)
    assert text == request_modes.encode_config(FILE, {MODE_MAP: whole})


def test_the_largest_table_fits_into_a_frame() -> None:
    topic, group = "t" * MAX_TOPIC_CHARS, "g" * MAX_GROUP_CHARS
    table = RequestModeTable()
    table.put(RequestMode(topic, group, POP, -(1 << 31)))
    assert MODES_MAX * len(finish(table.body_steps())) < MAX_FRAME_BYTES


def test_a_full_table_gives_up_pairs_whose_topic_or_group_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_modes, "MODES_MAX", 3)
    table, new = table_of(3, 1), RequestMode("New", "G")
    with pytest.raises(RequestError, match="keeps 3 of at most 3 pairs") as refused:
        table.check_room(new, lambda pair: True)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    table.check_room(RequestMode("T1", "G0"), lambda pair: True)
    table.check_room(new, lambda pair: pair[0] != "T1")
    assert [mode.topic for mode in table] == ["T0", "T2"]


def test_a_slaves_table_becomes_its_masters() -> None:
    table = table_of(4, 2)
    before = table.changes
    table.replace([RequestMode("T0", "G0", POP, 0), RequestMode("T1", "G1", POP, 9), RequestMode("X", "Y", PULL)])
    assert list(table) == [RequestMode("T0", "G0", POP, 0), RequestMode("T1", "G1", POP, 9), RequestMode("X", "Y")]
    assert table.changes == before + 4, "two are gone, one differs, one is new"
    table.dirty = False
    table.replace(list(table))
    assert not table.dirty


# ---- damage ----


GOOD = {"mode": "POP", "popShareQueueNum": 2}


def loaded(root: Path, lines: list[str]) -> list[RequestMode]:
    """What a start reads: it tells of damage once, and control reads the same."""
    config = changed(BrokerConfig(), {"storePathRootDir": str(root)})
    load_into(FakePlane(), config, RecoveredStore("clean"), lines.append)  # type: ignore[arg-type]
    table = RequestModeTable()
    load_modes(root, table, fresh=False)
    return list(table)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"T": {"G": GOOD, "odd": {"mode": "PUSH"}}}, "'T@odd' is left out: field mode = 'PUSH'"),
        ({"T": {"G": GOOD, "odd": 7}}, "'T@odd' is left out: field odd is a int"),
        ({"T": {"G": GOOD, "odd": {"popShareQueueNum": 1 << 40}}}, "'T@odd' is left out: field popShareQueueNum"),
        ({"T": {"G": GOOD}, "a/b": {"G": GOOD}}, "'a/b@G' is left out: topic 'a/b': no folder"),
        ({"T": {"G": GOOD, "g" * 300: GOOD}}, "a name is 1 to 255 bytes"),
        ({"T": {"G": GOOD}, "U": [1]}, "topic 'U' are left out: wanted an object"),
    ],
)
def test_an_odd_entry_is_named_and_the_others_count(tmp_path: Path, text: Any, words: str) -> None:
    persist_text(tmp_path, FILE, json.dumps({MODE_MAP: text, "foreign": [1, {"a": None}]}))
    lines: list[str] = []
    assert loaded(tmp_path, lines) == [RequestMode("T", "G", POP, 2)]
    assert len(lines) == 1
    assert f"config/{FILE}: " in lines[0] and words in lines[0] and f"{FILE}.damaged" in lines[0]


def test_the_older_copy_stands_in_for_a_damaged_file(tmp_path: Path) -> None:
    persist_text(tmp_path, FILE, json.dumps({MODE_MAP: {"T": {"G": GOOD}}}))
    persist_text(tmp_path, FILE, '{"messageRequ')
    lines: list[str] = []
    assert loaded(tmp_path, lines) == [RequestMode("T", "G", POP, 2)]
    assert len(lines) == 1 and f"{FILE}.bak is used in its place" in lines[0]


@pytest.mark.parametrize("text", ['{"messageRequestModeMap":7}', "[1]"])
def test_a_file_without_a_table_ends_the_start(tmp_path: Path, text: str) -> None:
    persist_text(tmp_path, FILE, text)
    with pytest.raises(ConfigFileError, match=FILE):
        loaded(tmp_path, [])


def test_a_store_without_the_file_has_no_modes(tmp_path: Path) -> None:
    lines: list[str] = []
    assert loaded(tmp_path, lines) == []
    assert not any(FILE in line for line in lines)
