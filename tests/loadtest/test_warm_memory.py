"""Memory is touched before a run, and only what is free."""

from pathlib import Path

import pytest

from ringmq.loadtest.load import warm_memory


def test_free_memory_is_read_from_meminfo() -> None:
    assert warm_memory.free_bytes("MemTotal:  24 kB\nMemFree:   1024 kB\n") == 1 << 20
    with pytest.raises(ValueError, match="MemFree"):
        warm_memory.free_bytes("MemTotal: 24 kB\n")


def test_whole_pieces_are_touched_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_memory, "PIECE_BYTES", 1 << 20)
    assert warm_memory.touch((3 << 20) + 5) == 3 << 20
    assert warm_memory.touch(100) == 0


@pytest.mark.parametrize(("text", "expected"), [("9\n", True), ("11\n", False), ("", False)])
def test_orders_above_the_largest_report_nothing(tmp_path: Path, text: str, expected: bool) -> None:
    parameter = tmp_path / "page_reporting_order"
    parameter.write_text(text)
    assert warm_memory.free_pages_go_back(parameter) is expected
    assert not warm_memory.free_pages_go_back(tmp_path / "missing")
