"""Every scenario file tells what timers do."""

from pathlib import Path

import pytest

from tests.scenario import check, differences
from tests.timer.timer_stage import TimerStage

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
STAGES = {"timers": TimerStage}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_happens_as_written(path: Path) -> None:
    check(path, STAGES)


def test_a_file_that_says_something_else_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("core: timers\n@0 send a, due in 500\n@5000 time passes\n  > 600: deliver a\n")
    assert list(differences(path, TimerStage))
    path.write_text("core: timers\n@0 send a, due in 5000\n@1000 waiting: none\n")
    assert list(differences(path, TimerStage))
