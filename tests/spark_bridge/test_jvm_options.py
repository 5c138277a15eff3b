"""What `ringmq-jvm` is told of a read: names and offsets that it knows, in place of what only Python's planner does."""

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


def told(root: Path, **options: str) -> Any:
    found = jvm.jvm_options(None, {"store": str(root)} | options)
    return None if found is None else {name: text for name, text in found.items() if name != "store"}


def test_a_pattern_is_python_s(root: Path) -> None:
    assert told(root, subscribePattern="(?P<first>O)rders.*") == {"subscribe": "Orders,OrdersOld"}
    assert told(root, subscribePattern="Emp.*") is None, "nothing that ringmq-jvm could find"


def test_topics_and_queues_without_messages(root: Path) -> None:
    assert told(root) == {}
    assert told(root, subscribe="Orders") == {"subscribe": "Orders"}
    assert told(root, subscribe="Orders,Empty") is None
    found = told(root, assign='{"Orders": [2, 3]}')
    assert {name: json.loads(text) for name, text in found.items()} == {
        "assign": {"Orders": [2]},
        "startingOffsets": {"Orders": {"2": 0}},
        "endingOffsets": {"Orders": {"2": 2}},
    }
    starting = json.dumps({"Orders": {str(number): 0 for number in range(4)}})
    assert json.loads(told(root, subscribe="Orders", startingOffsets=starting)["assign"]) == {"Orders": [0, 1, 2]}


def test_a_topic_that_is_not_there_is_refused_as_ever(root: Path) -> None:
    with pytest.raises(OptionError, match="Order not found"):
        told(root, subscribe="Order")
