"""A task with little address space (what spark.executor.pyspark.memory does to it) reads on, and stays small."""

import subprocess
import sys

import pytest

from tests.spark_bridge.made_store import MadeStore

BODY_BYTES, RECORDS = 1 << 20, 60
TASK = """
import resource, sys
import pyarrow
from pathlib import Path
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.spark_bridge.reading import slice_of

def status(name):
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(name + ":"))
    return int(line.split()[1]) << 10

root, end, count, window_bytes, room = Path(sys.argv[1]), *map(int, sys.argv[2:])
pyarrow.array([1])
log = slice_of(root, {("T", 0): (0, count)}, (0, end))
queue = slice_of(root, {("T", 0): (0, count)})
how = ReadSettings(window_bytes=window_bytes, reuse_buffers=True)
columns = ("value", "offset", "topic", "key")
next(iter(read_slice(log, columns, how)))  # what a first read loads stays loaded
limit = status("VmSize") + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for part in (log, queue):
    print(sum(batch.num_rows for batch in read_slice(part, columns, how)), status("RssAnon"))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    made = MadeStore(tmp_path_factory.mktemp("memory") / "store", file_bytes=64 << 20)
    for number in range(RECORDS):
        made.append(body=number.to_bytes(4, "big") * (BODY_BYTES // 4))
    return made


@pytest.mark.parametrize("window_bytes", [4 << 20, 256 << 20])
def test_little_address_space(store: MadeStore, window_bytes: int) -> None:
    arguments = [str(store.root), str(store.end), str(RECORDS), str(window_bytes), str(24 << 20)]
    done = subprocess.run([sys.executable, "-c", TASK, *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        rows, anonymous_bytes = map(int, line.split())
        assert rows == RECORDS
        assert anonymous_bytes < 150 << 20
    assert len(done.stdout.splitlines()) == 2
