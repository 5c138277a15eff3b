"""A short form of `make damage`."""

import pytest

from ringmq.loadtest.drills import damage


def test_damaged_stores_serve_what_their_logs_have(capfd: pytest.CaptureFixture[str]) -> None:
    assert damage.main(["--seed", "3", "--rounds", "1", "--messages", "60", "--stopped"]) == 0
    assert "1 rounds in" in capfd.readouterr().out
