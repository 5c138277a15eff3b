"""The comparison of Python clients: its rows, its table, and one short run of both sides."""

import json
from pathlib import Path

import pytest

from ringmq.loadtest.bench.measurement import PEER, RINGMQ, Measurement
from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.sdk import main as sdk_compare


def test_rows_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row.name for row in sdk_compare.parse([]).row_list] == ["batch", "pipelined", "one", "consume"]
    assert [row.name for row in sdk_compare.parse(["--rows", "consume,one"]).row_list] == ["one", "consume"]
    with pytest.raises(SystemExit):
        sdk_compare.parse(["--rows", "none"])
    assert "none unknown; there are batch" in capsys.readouterr().err


def test_the_table_judges_by_the_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def runs(*rates: float) -> list[Measurement]:
        return [Measurement({sdk_compare.RATE: rate}) for rate in rates]

    results = {
        "batch": {RINGMQ: runs(90, 100, 110), PEER: runs(20, 25, 30)},
        "one": {RINGMQ: runs(9), PEER: runs(10)},
        "consume": {RINGMQ: runs(9), PEER: [Measurement({}, ok=False, note="it stood still")]},
    }
    rows = [row for row in sdk_compare.ROWS if row.name in results]
    report = sdk_compare.document(rows, results, tmp_path, {"rounds": 3, "seconds": 1.0})
    sdk_compare.print_table(report)
    lines = {line[:7].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert "100 +- 10" in lines["batches"] and lines["batches"].endswith("4 (>=3x peer: ok)")
    assert lines["one at"].endswith("0.9 (>=1x peer: SHORT)")
    assert lines["consume"].endswith("- (>=3x peer: ?)")


@pytest.mark.io_uring
@pytest.mark.timeout(400)
def test_both_clients_run(tmp_path: Path) -> None:
    try:
        sdk_compare.peer_python()
    except ToolError as error:
        pytest.skip(f"the other client cannot be had: {error}")
    assert sdk_compare.main(["--quick", "--folder", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    assert {row["name"]: [row["systems"][side]["counted"] for side in (RINGMQ, PEER)] for row in report["rows"]} == {
        name: [1, 1] for name in ("batch", "pipelined", "one", "consume")
    }
