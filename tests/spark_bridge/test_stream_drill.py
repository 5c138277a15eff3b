"""The short form of the exactly-once drill; its long form: python -m tests.spark_bridge.stream_drill --kills 50"""

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.timeout(600)]

KILLS = 1
SEED = 4
"""Its plan kills a Python worker, and then the driver with all that it has started."""


def test_every_row_is_in_the_sink_once_whatever_was_killed(tmp_path: Path) -> None:
    from tests.spark_bridge.stream_drill import run_drill

    report = run_drill(tmp_path, KILLS, SEED)
    assert not report.faults, report.faults[:10]
    assert report.kills == KILLS
    assert report.rows > 0
