"""Every scenario file tells what transactions do."""

from pathlib import Path

import pytest

from tests.scenario import check, differences
from tests.services.transaction_stage import TransactionStage

FILES = sorted((Path(__file__).parent / "transaction_scenarios").glob("*.txt"))
STAGES = {"transactions": TransactionStage}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_happens_as_written(path: Path) -> None:
    check(path, STAGES)


def test_a_file_that_says_something_else_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("core: transactions\n@0 send half a\n@1 commit a\n")
    assert list(differences(path, TransactionStage))
    path.write_text("core: transactions\n@0 send half a\n@1 open: none\n")
    assert list(differences(path, TransactionStage))
