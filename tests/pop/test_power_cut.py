"""A power cut at a whole broker: only what was done since the last snapshot is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker, remove_shared_memory
from ringmq.native import ffi
from ringmq.pop import image_file
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.test_pop_broker import QUEUES, check_rest, found, send
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


def open_in_image(store: Path) -> int:
    """Open messages in the image, -1 while there is none."""
    path = store / image_file.FOLDER / image_file.IMAGE
    if not path.exists():
        return -1
    with path.open("rb") as file:
        layout = image_file.read_header(file.read(image_file.PAGE), has_check=False).layout
        file.seek(int(layout.entries_at))
        data = file.read()
    entries = ffi.from_buffer("struct rmq_pop_entry[]", data[: len(data) // 64 * 64])
    return sum((int(one.present) & ~int(one.acked)).bit_count() for one in entries if one.state)


def test_the_snapshot_has_all_but_the_last_second(tmp_path: Path) -> None:
    store, bodies = tmp_path / "store", [b"m%d" % number for number in range(200)]
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T_kill", QUEUES)
        send(broker.address, "T_kill", bodies)
        client = PopClient(broker.address, "G_kill", "T_kill")
        held = [found(client), *client.pop_all(count=9)]
        acked, kept = held[:80], held[80:]
        assert all(client.ack(one).code == 0 for one in acked)
        wait_until(lambda: open_in_image(store) == len(kept), "a snapshot has all")
        broker.kill_all()
    remove_shared_memory(store)
    with RunningBroker(store, SMALL) as broker:
        assert "pop" in broker.worker_pids(), "it starts at once, because messages are open"
        check_rest(broker.address, acked, kept, bodies)
        assert broker.stop() == 0


def test_what_no_snapshot_has_comes_again(tmp_path: Path) -> None:
    """The files are as they were before the first pop: all messages are given anew, and none is lost."""
    store, bodies = tmp_path / "store", [b"m%d" % number for number in range(40)]
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T_cut", QUEUES)
        send(broker.address, "T_cut", bodies)
        client = PopClient(broker.address, "G_cut", "T_cut")
        first = [found(client), *client.pop_all(count=9)]
        assert len(first) == len(bodies)
        broker.kill_all()
    remove_shared_memory(store)
    for path in (store / image_file.FOLDER).iterdir():
        path.unlink()
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "G_cut", "T_cut")
        again = [found(client), *client.pop_all(count=9)]
        assert sorted(one.body for one in again) == sorted(bodies)
        assert broker.stop() == 0
