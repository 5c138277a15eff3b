"""Readers of a live store's files, while its broker changes the version: SDK, `scan`, Spark's sources, the CLI."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.ipc.segment import SHM_DIR, plain_name, plane_name
from ringmq.ipc.watermark import read_watermarks
from ringmq.spark_bridge import scan
from tests.staging import bodies_of
from tests.upgrade.version_kit import QUEUES, TOPIC, Expected, Member, Senders
from tests.waiting import wait_dispatched

pytestmark = pytest.mark.upgrade
NEW = sys.executable


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark.sql")
    from pyspark_ringmq.session import session

    from ringmq.spark_bridge.jar import jar_path

    assert jar_path() is not None, "run `make jar`"
    made = session("ringmq upgrade", cores=1, scratch=tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()


def check_readers(spark: Any, store: Path, address: str, wanted: set[bytes]) -> None:
    """Each reader of this version shows all acknowledged messages of the live broker."""
    wait_dispatched(store)
    assert read_watermarks(store).live
    assert wanted <= set(bodies_of(address, TOPIC, QUEUES))
    assert wanted <= set(scan(store, topics=TOPIC, columns=["value"]).to_arrow()["value"].to_pylist())
    for name in ("ringmq", "ringmq-jvm"):
        frame = spark.read.format(name).option("store", str(store)).option("subscribe", TOPIC).load()
        assert wanted <= {bytes(row.value) for row in frame.select("value").collect()}, name


def inspected(python: str, store: Path) -> str:
    """The output of `ringmq store inspect` of a version."""
    command = [python, "-m", "ringmq.cli.main", "store", "inspect", str(store)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0 and "Traceback" not in found.stdout + found.stderr, found.stderr
    return found.stdout


@pytest.mark.parametrize("how", ["clean stops", "kills"])
def test_readers_of_this_version_follow_a_broker_there_and_back(
    member: Member, old_python: str, spark: Any, how: str
) -> None:
    Expected().fill(member.run(old_python).address)
    acknowledged: set[bytes] = set()
    for number, python in enumerate((old_python, NEW, old_python, NEW)):
        broker = member.broker
        if number and broker is not None:
            if how == "kills":
                broker.kill_all()
                member.broker = None
            broker = member.run(python)
        assert broker is not None
        senders = Senders(broker.address)
        try:
            senders.wait_for_more(50)
        finally:
            senders.close()
        acknowledged |= set(senders.acknowledged)
        plain, name = plain_name(member.store), plane_name(member.store)
        assert (name == plain) == (python == old_python)
        if python == NEW:
            left = [path.name for path in SHM_DIR.glob(f"{plain}-*") if not path.name.startswith(f"{name}-")]
            assert left == [], "segments of earlier runs"
        check_readers(spark, member.store, broker.address, acknowledged)
        assert TOPIC in inspected(NEW, member.store)
        inspected(old_python, member.store)
