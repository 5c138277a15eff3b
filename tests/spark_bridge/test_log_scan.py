"""`scan` and `store_to_parquet`: the log without Spark."""

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge import scan, store_to_parquet
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.option_table import OptionError
from ringmq.spark_bridge.schema import KAFKA_COLUMNS
from tests.spark_bridge.made_store import MadeStore
from tests.spark_bridge.plain_decoder import log_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ringmq.spark_bridge import session
    from ringmq.spark_bridge.log_scan import Scan

BROKER = "DEFAULT_BROKER"


@pytest.fixture(scope="module")
def expected(golden_store: Path) -> list[dict[str, Any]]:
    return [row for row in log_rows(golden_store, BROKER) if is_user_topic(row["topic"])]


def keyed(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(row["topic"], row["partition"], row["offset"]): row for row in rows}


def test_all_rows_as_a_table(golden_store: Path, expected: list[dict[str, Any]]) -> None:
    found = scan(golden_store)
    table = found.to_arrow()
    assert tuple(table.schema.names) == KAFKA_COLUMNS
    wanted = [{name: row[name] for name in KAFKA_COLUMNS} for row in expected]
    assert keyed(table.to_pylist()) == keyed(wanted)
    assert found.count() == len(expected) == table.num_rows
    assert found.to_arrow().equals(table), "a scan can be read again"


def test_topics_columns_and_options(golden_store: Path, expected: list[dict[str, Any]]) -> None:
    found = scan(golden_store, topics="GoldC", columns=["offset", "broker"], endingOffsets="latest")
    rows = found.to_arrow().to_pylist()
    assert len(rows) == found.count() == sum(row["topic"] == "GoldC" for row in expected)
    assert {row["broker"] for row in rows} == {BROKER}
    with pytest.raises(OptionError, match="stroe"):
        scan(golden_store, stroe="x")


def test_a_damaged_body_fails_the_scan_when_asked(
    golden_store: Path, manifest: list[dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(golden_store, tmp_path / "store")
    row = next(row for row in manifest if row["topic"] == "GoldC" and row["storedBodyLength"])
    log = next((tmp_path / "store" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(row["commitLogOffset"] + 11)
        crc = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([crc ^ 1]))
    damaged = scan(tmp_path / "store", topics="GoldC", check_crc=True)
    with pytest.raises(ReadError, match=f"{row['commitLogOffset']}.*CRC"):
        damaged.to_arrow()
    assert scan(tmp_path / "store", topics="GoldC").to_arrow().num_rows


def test_options_are_numbers_and_bools_too(golden_store: Path, expected: list[dict[str, Any]]) -> None:
    assert scan(golden_store, startingTimestamp=0).count() == len(expected)
    late: dict[str, Any] = {"startingTimestamp": 4_000_000_000_000}
    assert scan(golden_store, **late, startingOffsetsByTimestampStrategy="latest").count() == 0
    assert "headers" in scan(golden_store, includeHeaders=True).schema.names
    with pytest.raises(OptionError, match="a float; accepted: text"):
        scan(golden_store, startingTimestamp=0.5)  # type: ignore[arg-type]


def test_a_scan_is_an_arrow_stream(golden_store: Path) -> None:
    found = scan(golden_store, topics="GoldC", columns=("offset", "key", "value"))
    table = pa.table(found)
    assert table.equals(found.to_arrow())
    assert table.num_rows == found.count() > 0
    reader = pa.RecordBatchReader.from_stream(found)
    assert reader.schema == found.schema
    assert reader.read_all().equals(table)


def test_the_helpers_are_typed() -> None:
    """mypy reads these lines: an untyped helper is `Any`, and `assert_type` fails."""
    if TYPE_CHECKING:
        assert_type(scan("store", startingTimestamp=0), Scan)
        assert_type(session(), SparkSession)
    assert (files("ringmq.spark_bridge") / "py.typed").is_file()


def test_batches_are_not_overwritten(golden_store: Path, expected: list[dict[str, Any]]) -> None:
    batches = list(scan(golden_store, columns=("value",)))
    assert len(batches) > 1
    values = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert sorted(values) == sorted(row["value"] for row in expected)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_frames_or_the_extra_that_is_missing(golden_store: Path, package: str) -> None:
    found = scan(golden_store, topics="GoldC", columns=("offset", "key"))
    try:
        __import__(package)
    except ImportError:
        with pytest.raises(ImportError, match=rf"ringmq\[{package}\]"):
            getattr(found, f"to_{package}")()
    else:
        assert len(getattr(found, f"to_{package}")()) == found.count()


def test_a_progress_bar_only_where_it_is_wanted(golden_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scan(golden_store).count() > 0
    assert capsys.readouterr().err == "", "standard error is no terminal here"
    pytest.importorskip("tqdm")
    assert scan(golden_store, progress=True).count() > 0
    assert "scan: 100%" in capsys.readouterr().err


def test_importing_the_package_loads_neither_spark_nor_arrow() -> None:
    code = "import sys, ringmq.spark_bridge; print({'pyspark', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture
def grown_store(tmp_path: Path) -> MadeStore:
    made = MadeStore(tmp_path / "store", file_bytes=4096)
    for number in range(60):
        made.append(queue_id=number % 3, body=b"x" * 100)
    return made


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_sealed_files_become_parquet_and_only_once(grown_store: MadeStore, tmp_path: Path) -> None:
    target = tmp_path / "out" / "parquet"
    sealed_end = grown_store.end // grown_store.file_bytes * grown_store.file_bytes
    starts = range(0, sealed_end, grown_store.file_bytes)
    written = store_to_parquet(grown_store.root, target, columns=("commit_log_offset", "value", "headers"))
    assert [path.name for path in written] == [f"{start:020d}.parquet" for start in starts]
    expected = [place[0] for place in grown_store.places if place[0] < sealed_end]
    assert [row["commit_log_offset"] for row in parquet_rows(target)] == expected
    assert store_to_parquet(grown_store.root, target, columns=("commit_log_offset", "value", "headers")) == []
    while grown_store.end < sealed_end + grown_store.file_bytes + 1:
        grown_store.append()
    more = store_to_parquet(grown_store.root, target, columns=("commit_log_offset", "value", "headers"))
    assert [path.name for path in more] == [f"{sealed_end:020d}.parquet"]
    assert [path.suffix for path in target.iterdir() if path.suffix != ".parquet"] == []


def test_a_target_with_other_columns_is_refused(grown_store: MadeStore, tmp_path: Path) -> None:
    store_to_parquet(grown_store.root, tmp_path / "p", columns=("offset",))
    with pytest.raises(ReadError, match="other columns"):
        store_to_parquet(grown_store.root, tmp_path / "p", columns=("offset", "value"))


def test_a_target_of_other_topics_or_another_store_is_refused(grown_store: MadeStore, tmp_path: Path) -> None:
    target = tmp_path / "p"
    written = store_to_parquet(grown_store.root, target, topics="T", columns=("offset",))
    assert written
    assert store_to_parquet(grown_store.root, target, topics=["T"], columns=("offset",)) == []
    for _ in range(60):
        grown_store.append(topic="U", body=b"x" * 100)
    with pytest.raises(ReadError, match=r"ringmq.topics = T, not U; give another target folder"):
        store_to_parquet(grown_store.root, target, topics="U", columns=("offset",))
    with pytest.raises(ReadError, match=r"ringmq.topics = T, not all user topics"):
        store_to_parquet(grown_store.root, target, columns=("offset",))
    shutil.move(grown_store.root, tmp_path / "old")
    shutil.copytree(tmp_path / "old", grown_store.root)
    with pytest.raises(ReadError, match=r"ringmq.store = .*inode \d+, not .*inode \d+"):
        store_to_parquet(grown_store.root, target, topics="T", columns=("offset",))
    assert sorted(target.iterdir()) == written


def test_an_interrupted_file_is_written_anew(grown_store: MadeStore, tmp_path: Path) -> None:
    target = tmp_path / "p"
    target.mkdir()
    (target / f".{0:020d}.parquet.part").write_bytes(b"half of a file")
    store_to_parquet(grown_store.root, target, columns=("offset",))
    assert not list(target.glob(".*"))
    assert len(parquet_rows(target)) > 10
