"""Every scenario file tells what the cores do."""

from pathlib import Path

import pytest

from tests.ha.master_stage import MasterStage
from tests.ha.slave_stage import SlaveStage
from tests.scenario import check, differences

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
STAGES = {"master": MasterStage, "slave": SlaveStage}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_happens_as_written(path: Path) -> None:
    check(path, STAGES)


def test_a_file_that_says_something_else_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("core: master\n@0 tick\n  > state LOST, 1 in sync\n")
    assert list(differences(path, MasterStage))
    path.write_text("core: slave\n@0 tick\n@1 the master is a:1\n")
    assert list(differences(path, SlaveStage))
