"""Deliveries before, from records of topics of retries: any host, any order, several files, records that are gone."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ringmq.spark_bridge.delivery_counts import UNKNOWN, deliveries_before
from ringmq.spark_bridge.log_segments import LogSegments, WindowCursor
from ringmq.spark_bridge.queue_units import QueueUnits
from tests.spark_bridge.made_store import MadeStore
from tests.spark_bridge.reading import place_of

TOPIC = "%RETRY%G_T"
HOSTS = ("10.1.2.3", "fe80::1")
COUNT = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    """Message n was given n times before. Log files of 16 KiB, queue files of 100 units."""
    store = MadeStore(tmp_path_factory.mktemp("retries") / "store", file_bytes=1 << 14, units_per_file=100)
    for number in range(COUNT):
        born, stored = HOSTS[number % 2], HOSTS[number // 2 % 2]
        store.append(topic=TOPIC, reconsume_times=number, born_host=born, store_host=stored, body=b"x" * 100)
        store.append(topic="Other")
    store.write_filler(TOPIC, 0, 7)
    return store


def counts(root: Path, offsets: list[int], window_bytes: int = 16 << 20) -> list[int]:
    queue = QueueUnits(root / "consumequeue" / TOPIC / "0")
    with LogSegments(place_of(root)) as log:
        windows = WindowCursor(log, window_bytes)
        found = deliveries_before(queue, windows, np.array(offsets, np.int64))
        windows.close()
    return [int(number) for number in found]


@pytest.mark.parametrize("window_bytes", [4096, 16 << 20])
def test_each_has_its_own(made: MadeStore, window_bytes: int) -> None:
    offsets = [number for number in range(COUNT) if number != 7]
    assert counts(made.root, offsets, window_bytes) == offsets
    assert counts(made.root, offsets[::-1], window_bytes) == offsets[::-1]


def test_gaps_and_repetitions(made: MadeStore) -> None:
    assert counts(made.root, [299, 0, 150, 0]) == [299, 0, 150, 0]
    assert counts(made.root, []) == []


def test_an_offset_without_a_record_is_unknown(made: MadeStore) -> None:
    assert counts(made.root, [6, 7, COUNT, 8, 5000]) == [6, UNKNOWN, UNKNOWN, 8, UNKNOWN]


def test_records_that_retention_has_taken_are_unknown(made: MadeStore, tmp_path: Path) -> None:
    root = shutil.copytree(made.root, tmp_path / "store")
    _, second, *_ = sorted((root / "commitlog").iterdir())
    second.unlink()
    in_second = [
        offset for position, _, fields, offset in made.places
        if fields.topic == TOPIC and made.segment(position).name == second.name and offset != 7
    ]  # fmt: skip
    found = counts(root, list(range(COUNT)))
    assert [number for number, count in enumerate(found) if count == UNKNOWN and number != 7] == in_second != []
    (root / "consumequeue" / TOPIC / "0" / f"{0:020d}").unlink()
    assert counts(root, [5, 99, 250]) == [UNKNOWN, UNKNOWN, 250]


def test_a_record_of_another_queue_offset_is_unknown(made: MadeStore, tmp_path: Path) -> None:
    """A topic that was deleted and made again may have units over records of before."""
    root = shutil.copytree(made.root, tmp_path / "store")
    position = next(position for position, _, fields, offset in made.places if (fields.topic, offset) == (TOPIC, 3))
    with (root / "commitlog" / made.segment(position).name).open("r+b") as file:
        file.seek(position % made.file_bytes + 20)
        file.write((4).to_bytes(8, "big"))
    assert counts(root, [2, 3, 4]) == [2, UNKNOWN, 4]
