"""Spark with two executors, each a process of its own: tasks read by shared memory or over tcp, whatever is asked."""

import json
import os
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance import servers
from tests.spark_bridge.golden_broker import start_on_golden

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    running = start_on_golden("ringmq", tmp_path_factory.mktemp("local-cluster"))
    yield running
    running.close()


def expected_totals(server: servers.Server) -> dict[str, list[int]]:
    """Rows, sum of offsets and sum of the values' CRCs by topic, read in this process."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    options = parse_options({"store": str(server.store), "subscribePattern": "Gold.*"})
    for part in plan_batch(open_catalog(options), options):
        for batch in read_slice(part, ("topic", "offset", "value"), ReadSettings()):
            for row in batch.to_pylist():
                sums = totals[row["topic"]]
                sums[0] += 1
                sums[1] += row["offset"]
                sums[2] += zlib.crc32(row["value"])
    return totals


def spark_home(folder: Path) -> Path:
    """Workers start executors from SPARK_HOME and write into its folder `work`: pyspark's own files, elsewhere."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_two_executors(server: servers.Server, tmp_path: Path) -> None:
    environment = os.environ | {
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
        "PYSPARK_PYTHON": sys.executable,
    }
    job = Path(__file__).with_name("local_cluster_job.py")
    done = subprocess.run(
        [sys.executable, str(job), server.namesrv],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["executors"] == 2
    expected = expected_totals(server)
    assert told["sums"] == {"auto": expected, "tcp": expected}
