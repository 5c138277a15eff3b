"""Reads by both sources, and their rows."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge.schema import COLUMNS
from tests.spark_bridge.made_store import COMPRESSED, ROLLBACK, MadeStore, properties_bytes

Read = Callable[..., Any]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    """The session of all tests, where it has the jar."""
    from ringmq.spark_bridge.jar import jar_path

    if jar_path() is None:
        assert shutil.which("javac") is None, "there is a JDK, but no jar: run `make jar`"
        pytest.skip("no JDK, so no jar")
    return spark


@pytest.fixture(scope="module")
def read(spark: Any, golden_store: Path) -> Read:
    """`read(format, **options)`: a frame of the golden store."""

    def make(name: str, **options: object) -> Any:
        given = {"store": golden_store, "columns": ",".join(COLUMNS)} | options
        reader = spark.read.format(name)
        for option, value in given.items():
            reader = reader.option(option, str(value).lower() if isinstance(value, bool) else str(value))
        return reader.load()

    return make


def rows(frame: Any) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def plan_of(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Two log files, a rolled-back message, a compressed body, and hosts of both lengths."""
    store = MadeStore(tmp_path / "store", file_bytes=64 << 10)
    for number in range(600):
        store.append(
            topic=f"T{number % 2}",
            queue_id=number % 3,
            body=b"x" * (number % 300),
            properties=properties_bytes({"KEYS": f"k{number}", "TAGS": "ä", "a": "b"}),
            born_host="::1" if number % 5 == 0 else "127.0.0.1",
            store_host="::2" if number % 7 == 0 else "127.0.0.1",
        )
    store.append(topic="T0", sys_flag=ROLLBACK, is_dispatched=False)
    store.append(topic="T0", sys_flag=COMPRESSED, body=b"no zlib")
    return store
