"""The options that `ringmq-jvm` gets: topic names and offsets in place of patterns and times."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge.option_table import OptionError
from tests.spark_bridge.made_store import MadeStore
from tests.spark_bridge.test_configured_queues import configure

jvm = pytest.importorskip("pyspark_ringmq.jvm")
pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Orders has messages in three of four queues, OrdersOld in all, Empty in none."""
    monkeypatch.setattr(jvm, "_is_there", lambda session: True)
    made = MadeStore(tmp_path / "store")
    for number in range(6):
        made.append(topic="Orders", queue_id=number % 3)
    made.append(topic="OrdersOld")
    configure(made.root, {"Orders": (4, 6), "OrdersOld": (1, 6), "Empty": (1, 6)})
    return made.root


def options_of_jvm(root: Path, **options: str) -> Any:
    found = jvm.jvm_options(None, {"store": str(root)} | options)
    return None if found is None else {name: text for name, text in found.items() if name != "store"}


def test_a_pattern_is_python_s(root: Path) -> None:
    assert options_of_jvm(root, subscribePattern="(?P<first>O)rders.*") == {"subscribe": "Orders,OrdersOld"}
    assert options_of_jvm(root, subscribePattern="Emp.*") == {"subscribe": "Empty"}
    assert options_of_jvm(root, subscribePattern="Nothing.*") is None


def test_names_are_left_as_they_are(root: Path) -> None:
    starting = json.dumps({"Orders": {str(number): 0 for number in range(4)}})
    for options in (
        {},
        {"subscribe": "Orders,Empty"},
        {"assign": '{"Orders": [2, 3]}'},
        {"subscribe": "Orders", "startingOffsets": starting},
    ):
        assert options_of_jvm(root, **options) == options


def test_times_become_the_offsets_of_queues_with_rows(root: Path) -> None:
    found = options_of_jvm(root, subscribe="Orders", startingTimestamp="0", startingOffsetsByTimestampStrategy="latest")
    assert json.loads(found["assign"]) == {"Orders": [0, 1, 2]}
    assert json.loads(found["startingOffsets"]) == {"Orders": {"0": 0, "1": 0, "2": 0}}
    assert json.loads(found["endingOffsets"]) == {"Orders": {"0": 2, "1": 2, "2": 2}}


def test_a_topic_that_is_not_there_is_refused_as_ever(root: Path) -> None:
    with pytest.raises(OptionError, match="Order not found"):
        options_of_jvm(root, subscribe="Order")
