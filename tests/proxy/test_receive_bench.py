"""A short run of `make bench-proxy`: both clients receive and acknowledge."""

import json
from pathlib import Path

import pytest

from ringmq.loadtest.measuring.measurement import PEER, RINGMQ
from tests.proxy.receive_bench import BENCH, ROWS


@pytest.mark.proxy
@pytest.mark.timeout(600)
def test_both_clients_run(tmp_path: Path) -> None:
    assert BENCH.main(["--quick", "--folder", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    counted = {row["name"]: [row["systems"][side]["counted"] for side in (RINGMQ, PEER)] for row in report["rows"]}
    assert counted == {row.name: [1, 1] for row in ROWS}
