"""Which folders are read as stores."""

from pathlib import Path

import pytest

from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.store_access import check_folder, readable


def test_a_store_that_a_newer_ringmq_has_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with readable(tmp_path):
        check_folder(tmp_path)
    (tmp_path / "ringmq.format").write_text("9 ringmq 9.0\n")
    with pytest.raises(ReadError, match="format 9, written by ringmq 9"), readable(tmp_path):
        check_folder(tmp_path)
