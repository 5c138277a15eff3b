"""A store whose broker runs with umask 0027 is read by a user of the store's group, and by nobody else."""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.client import Message, Producer
from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance import servers

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

NOBODY = 65534
STORE_GROUP = 64321
OTHER_GROUP = 64322


@pytest.fixture
def server() -> Iterator[servers.RingmqServer]:
    """A broker as a service runs it, below a folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="ringmq-group-"))
    folder.chmod(0o755)
    store = folder / "store"
    store.mkdir()
    os.chown(store, 0, STORE_GROUP)
    store.chmod(0o2750)
    umask = os.umask(0o027)
    try:
        running = servers.RingmqServer(folder, {"mappedFileSizeCommitLog": 1 << 20})
    finally:
        os.umask(umask)
    try:
        asyncio.run(_send(running.namesrv))
        yield running
    finally:
        running.close()
        shutil.rmtree(folder)


async def _send(namesrv: str) -> None:
    async with Producer(namesrv) as producer:
        for number in range(10):
            await producer.send(Message("Group", b"%d" % number))


def _bodies(store: Path) -> str:
    options = parse_options({"store": str(store), "subscribe": "Group"})
    slices = plan_batch(open_catalog(options), options)
    batches = [batch for part in slices for batch in read_slice(part, ("value",), ReadSettings())]
    return ",".join(sorted(value.decode() for batch in batches for value in batch.column(0).to_pylist()))


def _as_user(group: int, do: Callable[[], str]) -> str:
    """What `do` returns, or the error it raises, in a process of user nobody with one group."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(NOBODY)
            answer = do()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(sending, answer.encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


def test_members_of_the_stores_group_read_it(server: servers.RingmqServer) -> None:
    as_root = _bodies(server.store)
    assert as_root == "0,1,2,3,4,5,6,7,8,9"
    assert _as_user(STORE_GROUP, lambda: _bodies(server.store)) == as_root, "live, by the watermark page"
    server.stop()
    assert _as_user(STORE_GROUP, lambda: _bodies(server.store)) == as_root, "without an owner"


def test_nobody_else_does_and_is_told_whose_group_helps(server: servers.RingmqServer) -> None:
    assert _bodies(server.store), "and everything is imported"
    answer = _as_user(OTHER_GROUP, lambda: _bodies(server.store))
    assert answer.startswith(ReadError.__name__), answer
    assert f"may not read {server.store}" in answer and f"group {STORE_GROUP}" in answer


def test_no_file_is_open_to_everybody(server: servers.RingmqServer) -> None:
    for path in (server.store, *server.store.rglob("*")):
        status = path.stat()
        assert status.st_gid == STORE_GROUP, path
        assert stat.S_IMODE(status.st_mode) & 0o777 == (0o750 if path.is_dir() else 0o640), path
    name = plane_name(server.store)
    for part, mode in (("watermarks", 0o640), ("plane", 0o640), ("arena0", 0o600)):
        status = (SHM_DIR / f"{name}-{part}").stat()
        assert stat.S_IMODE(status.st_mode) == mode, part
        assert part == "arena0" or status.st_gid == STORE_GROUP, part


def test_the_brokers_name_is_in_the_store(server: servers.RingmqServer) -> None:
    options = parse_options({"store": str(server.store)})
    assert [place.name for place in open_catalog(options).brokers()] == [servers.BROKER_NAME]
