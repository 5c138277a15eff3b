"""A store with name servers beside it: they are for tasks on other hosts, the files suffice for those on this one."""

import logging
from pathlib import Path

import pytest

from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from tests.spark_bridge.made_store import MadeStore


def test_name_servers_that_are_down_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = MadeStore(tmp_path / "store")
    for _ in range(5):
        made.append(topic="T")
    options = parse_options({"store": str(made.root), "bootstrap": "127.0.0.1:1"})
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        (part,) = plan_batch(open_catalog(options), options)
    assert (part.rows_max, part.broker.address) == (5, None)
    assert part.broker.store is not None
    assert "bootstrap 127.0.0.1:1" in caplog.text and "tasks on other hosts" in caplog.text
