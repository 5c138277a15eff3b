"""The comparison of Python clients: its rows, its table, and one short run of both sides."""

import json
from pathlib import Path

import pytest

from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.measuring.command import document
from ringmq.loadtest.measuring.measurement import PEER, RATE, RINGMQ, Measurement, failed
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.sdk import environments
from ringmq.loadtest.sdk import main as sdk_compare
from ringmq.loadtest.sdk.environments import python_with
from ringmq.loadtest.sdk.rows import PEER_REQUIREMENT, ROWS


def test_rows_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    parse = sdk_compare.BENCH.parse
    assert [row.name for row in parse([]).row_list] == ["batch", "pipelined", "one", "consume"]
    assert [row.name for row in parse(["--rows", "consume,one"]).row_list] == ["one", "consume"]
    with pytest.raises(SystemExit):
        parse(["--rows", "none"])
    assert "none unknown; there are batch" in capsys.readouterr().err


def test_the_table_judges_by_the_ratio(tmp_path: Path) -> None:
    def runs(*rates: float) -> list[Measurement]:
        return [Measurement({RATE: rate}) for rate in rates]

    results = {
        "batch": {RINGMQ: runs(90, 100, 110), PEER: runs(20, 25, 30)},
        "one": {RINGMQ: runs(9), PEER: runs(10)},
        "consume": {RINGMQ: runs(9), PEER: [failed("it stood still")]},
    }
    session = Session(
        [row for row in ROWS if row.name in results], lambda number: (turn for turn in ()), 3, runs=results
    )
    session.header = lambda: {"seconds": 1.0}
    text = sdk_compare.BENCH.text(document(session, tmp_path))
    lines = {line[2:9].strip(): line.rstrip(" |") for line in text.splitlines() if line.startswith("| ")}
    assert "100 +- 10" in lines["batches"] and lines["batches"].endswith("4 (>=3x peer: ok)")
    assert lines["one at"].endswith("**0.9** (>=1x peer: SHORT)")
    assert "does not count" in lines["consume"] and lines["consume"].endswith("- (>=3x peer: ?)")
    assert "consume, peer: it stood still" in text


@pytest.mark.io_uring
def test_an_installation_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path, with_pip: bool) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to("/bin/cat")

    monkeypatch.setattr(environments, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(environments.venv, "create", make)
    monkeypatch.setattr(environments, "INSTALL_TIMEOUT_S", 0)
    with pytest.raises(ToolError, match="peer==1 is not installed within 0 s"):
        python_with("peer==1")
    assert not (tmp_path / "peer-1" / ".ready").exists(), "the next call tries it again"


@pytest.mark.timeout(400)
def test_both_clients_run(tmp_path: Path) -> None:
    try:
        python_with(PEER_REQUIREMENT)
    except ToolError as error:
        pytest.skip(f"the other client cannot be had: {error}")
    assert sdk_compare.main(["--quick", "--folder", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    assert {row["name"]: [row["systems"][side]["counted"] for side in (RINGMQ, PEER)] for row in report["rows"]} == {
        name: [1, 1] for name in ("batch", "pipelined", "one", "consume")
    }
