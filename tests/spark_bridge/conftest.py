"""The golden store of stock RocketMQ 5.3.3, what its manifest says about each record, and one Spark session for all."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.archives import extract_all

GOLDEN = Path(__file__).parents[1] / "golden" / "store-basic"


@pytest.fixture(scope="session")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store after a clean stop; not to be written to."""
    target = tmp_path_factory.mktemp("spark-golden")
    with tarfile.open(GOLDEN / "store-basic.tar.gz") as tar:
        extract_all(tar, target)
    return target / "store-basic"


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, Any]]:
    """One entry per record, in log order."""
    with gzip.open(GOLDEN / "manifest.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of all tests of this process, two cores, with the JVM source where its jar was built.

    A process has one Spark context: tests that need another one run it in a process of their own. Settings that a test
    changes (`conf.set`) it changes back.
    """
    pytest.importorskip("pyspark.sql")
    from pyspark_ringmq.session import session

    made = session("ringmq tests", cores=2, scratch=tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()
