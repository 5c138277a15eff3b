"""A store that was made again is told from the one that it was, whatever inode its folder gets."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.slices import BrokerLocation, StoreLocation
from ringmq.spark_bridge.store_catalog import StoreCatalog
from ringmq.spark_bridge.store_watch import StoreWatch
from ringmq.spark_bridge.stream_core import Limits, StreamOffset
from ringmq.spark_bridge.stream_query import StreamQuery
from tests.spark_bridge.made_store import MadeStore

PLACE = BrokerLocation("a", "a:1", StoreLocation("/nowhere", "boot", 1, 7))


@pytest.fixture
def watch() -> Iterator[StoreWatch]:
    made = StoreWatch()
    yield made
    made.close()


def with_store(**changed: Any) -> BrokerLocation:
    assert PLACE.store is not None
    return replace(PLACE, store=replace(PLACE.store, **changed))


@pytest.mark.parametrize(
    ("place", "renewed"),
    [
        (PLACE, set()),
        (replace(PLACE, address="elsewhere:1"), set()),
        (replace(PLACE, store=None), set()),
        (with_store(boot_id="next", device=2), set()),
        (with_store(inode=8), {"a"}),
        (with_store(device=2), {"a"}),
        (with_store(boot_id="next", inode=8), {"a"}),
    ],
)
def test_which_stores_are_the_same(watch: StoreWatch, place: BrokerLocation, renewed: set[str]) -> None:
    assert watch.renewed([PLACE]) == set(), "the first look"
    assert watch.renewed([place]) == renewed
    assert watch.renewed([place]) == set(), "told once"


def test_the_folder_is_held_so_that_no_other_gets_its_inode(tmp_path: Path) -> None:
    def held() -> list[str]:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [str(link.readlink()) for link in links if str(tmp_path) in str(link.readlink())]

    root = tmp_path / "store"
    fill(root, 1)
    watch = StoreWatch()
    places = StoreCatalog(parse_options({"store": str(root)})).brokers()
    watch.renewed(places)
    watch.renewed(places)
    assert held() == [str(root / "commitlog")]
    watch.close()
    assert held() == []


def fill(root: Path, count: int) -> None:
    store = MadeStore(root)
    for number in range(count):
        store.append(topic="T", body=b"%d" % number)


def test_files_made_anew_under_a_query_are_read_from_the_first_offset(tmp_path: Path) -> None:
    root = tmp_path / "store"
    options = parse_options({"store": str(root), "failOnDataLoss": "false"}, streaming=True)
    fill(root, 100)
    query = StreamQuery(options, StoreCatalog(options))
    place = query.next_end(StreamOffset({}), Limits())
    for count in (150, 200, 250):  # each time the folder of before is gone, and its inode is free but for the watch
        assert [span.count for part in query.slices(StreamOffset({}), place) for span in part.spans] == [count - 50]
        shutil.rmtree(root)
        fill(root, count)
        end = query.next_end(place, Limits())
        assert [(span.begin, span.end) for part in query.slices(place, end) for span in part.spans] == [(0, count)]
        place = end
    query.close()
