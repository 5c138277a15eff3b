"""Which folders are read as stores."""

from pathlib import Path

import pytest

from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.store_access import check_folder, readable
from ringmq.store.store_format import FORMAT


def test_a_store_that_a_newer_ringmq_has_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with readable(tmp_path):
        check_folder(tmp_path)
    (tmp_path / "ringmq.format").write_text("9 ringmq 9.0\n")
    with pytest.raises(ReadError, match="format 9, written by ringmq 9"), readable(tmp_path):
        check_folder(tmp_path)


def test_the_jvm_source_knows_as_many_formats() -> None:
    path = Path(__file__).parents[2] / "spark_bridge/jvm/src/io/ringmq/spark/store/StoreFolder.java"
    assert f"private static final int FORMAT = {FORMAT}; " in path.read_text()
