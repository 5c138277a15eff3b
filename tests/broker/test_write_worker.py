"""The workers `write` and `ha` in this process, which pass the journal to one another."""

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.worker import serve_write
from ringmq.ha import worker as ha_worker
from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.journal import await_journal
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.supervisor import make_event_fds
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING
from ringmq.ipc.workers import WORKERS, port_plans
from ringmq.native import lib
from tests.waiting import wait_until

WRITE, HA = lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA
FILE_BYTES = 65_536


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    ports = port_plans(WORKERS.rows(1), lambda function: 4096)
    capacity = Capacity(64, 64, 64, 64, 64, 64, 64, 64, ports=ports)
    plane = Plane.create(f"test-{uuid.uuid4().hex[:12]}", capacity, tmp_path.stat(), 1)
    event_fds = make_event_fds(range(lib.RMQ_ROLES_MAX))
    plane.set_event_fds(event_fds)
    plane.create_arenas()
    folder = os.fsencode(tmp_path / "commitlog")
    settings = plane.header.settings
    settings.segment_bytes, settings.populate_window_bytes, settings.commit_log_path = FILE_BYTES, FILE_BYTES, folder
    lib.rmq_folder_make(folder)
    assert lib.rmq_segment_create(os.fsencode(tmp_path), folder, 0, FILE_BYTES) == 0
    yield plane
    for descriptor in event_fds.values():
        os.close(descriptor)
    remove_segments(plane.name)


def become(plane: Plane, state: TenureState, epoch: int = 1) -> int:
    """Publish a tenure as control does, with entries for all queues. Returns the word."""
    word = Tenure(state, epoch).word
    plane.watermarks.tenure = word
    lib.rmq_journal_let_open(plane.struct)
    for role in (WRITE, HA):
        plane.wake(role)
    return word


def test_write_gives_the_journal_away_and_takes_it_back(plane: Plane) -> None:
    journal, block = plane.header.ports.journal, plane.role(WRITE)
    spec: Any = SimpleNamespace(name="write", role=WRITE)
    worker = threading.Thread(target=serve_write, args=(spec, plane))
    worker.start()
    try:
        wait_until(lambda: journal.opened == plane.watermarks.tenure, "write has opened the log")
        assert block.state == STATE_SERVING
        become(plane, TenureState.YIELDING)
        wait_until(lambda: journal.owner == HA, "ha may append")
        become(plane, TenureState.SLAVE)
        before = block.progress
        wait_until(lambda: block.progress > before + 1, "write waits, and its loop turns")
        assert (block.state, journal.owner, journal.opened) == (STATE_SERVING, HA, 0)
        taking = become(plane, TenureState.TAKING, 2)
        lib.rmq_journal_give(plane.struct, HA, WRITE)
        wait_until(lambda: journal.opened == taking, "write has opened the log again")
    finally:
        plane.watermarks.stop_requested = lib.RMQ_STOP_WRITE
        worker.join(10)
    assert not worker.is_alive() and block.state == STATE_STOPPING


def test_write_opens_the_log_anew_for_another_promotion(plane: Plane) -> None:
    """A promotion was given up, and write has not given the journal back yet. Queues may have come since."""
    journal, row = plane.header.ports.journal, plane.header.ports.port[0]
    spec: Any = SimpleNamespace(name="write", role=WRITE)
    worker = threading.Thread(target=serve_write, args=(spec, plane))
    taking = become(plane, TenureState.TAKING, 2)
    worker.start()
    try:
        wait_until(lambda: journal.opened == taking, "write has opened the log")
        plane.role(row.role).pid = 1  # its owner has not stood yet
        become(plane, TenureState.SLAVE)
        taking = become(plane, TenureState.TAKING, 3)
        wait_until(lambda: journal.opened == taking, "write has opened the log again")
        assert journal.owner == WRITE
        become(plane, TenureState.SLAVE)
        row.stands = plane.watermarks.tenure
        wait_until(lambda: journal.owner == HA, "it gives the journal back")
    finally:
        plane.watermarks.stop_requested = lib.RMQ_STOP_WRITE
        worker.join(10)
    assert not worker.is_alive()


def test_a_word_of_an_earlier_try_lets_no_write_open(plane: Plane) -> None:
    """A control that died may have tried the same epoch, with fewer queues."""
    for _ in range(2):
        plane.publish_tenure(Tenure(TenureState.TAKING, 2))
        assert not lib.rmq_journal_may_open(plane.struct, WRITE)
        lib.rmq_journal_let_open(plane.struct)
        assert lib.rmq_journal_may_open(plane.struct, WRITE)
        plane.publish_tenure(Tenure(TenureState.SLAVE, 1))


def test_a_stop_ends_the_wait_for_the_journal(plane: Plane) -> None:
    """The workers of a slave are stopped in the same phase."""
    plane.watermarks.stop_requested = lib.RMQ_STOP_CONTROL
    assert await_journal(plane, WRITE)
    timer = threading.Timer(0.3, lambda: setattr(plane.watermarks, "stop_requested", lib.RMQ_STOP_WRITE))
    timer.start()
    assert not await_journal(plane, HA)
    timer.join()


def test_ha_is_the_sender_of_a_master_and_the_receiver_of_a_slave_by_turns(plane: Plane, tmp_path: Path) -> None:
    journal, block, statuses = plane.header.ports.journal, plane.role(HA), list[int]()
    settings = plane.header.settings
    settings.ha_transfer_bytes, settings.ha_heartbeat_ms, settings.ha_housekeeping_ms = 4096, 5000, 60_000
    properties = {
        "storePathRootDir": str(tmp_path), "brokerIP1": "127.0.0.1", "listenPort": "10911",
        "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": str(FILE_BYTES),
    }  # fmt: skip
    path = tmp_path / "properties.json"
    path.write_text(json.dumps(properties))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ha: Any = SimpleNamespace(name="ha", role=HA, config_path=str(path), listen_fds=(listener.fileno(),))
        write: Any = SimpleNamespace(name="write", role=WRITE)
        unused: Any = None  # the watermark page announces the stop
        workers = [
            threading.Thread(target=serve_write, args=(write, plane)),
            threading.Thread(target=lambda: statuses.append(ha_worker.serve(ha, plane, unused))),
        ]
        for worker in workers:
            worker.start()
        try:
            for epoch in (1, 2):
                wait_until(lambda: journal.opened and journal.owner == WRITE, "write has opened the log")
                become(plane, TenureState.MASTER, epoch)
                with socket.create_connection(listener.getsockname(), 10) as slave:
                    slave.sendall(bytes(8))
                    assert slave.recv(12), "it is sent the log"
                    yielding = become(plane, TenureState.YIELDING, epoch)
                    while slave.recv(4096):
                        pass
                wait_until(lambda word=yielding: journal.opened == word and journal.owner == HA, "ha appends")
                become(plane, TenureState.SLAVE, epoch)
                with socket.create_connection(listener.getsockname(), 10) as other:
                    assert other.recv(1) == b"", "a slave sends no log"
                become(plane, TenureState.TAKING, epoch + 1)
            wait_until(lambda: journal.opened and journal.owner == WRITE, "write has opened the log again")
            before = block.progress
            wait_until(lambda: block.progress > before + 1, "ha waits to be a master's")
        finally:
            plane.watermarks.stop_requested = lib.RMQ_STOP_HA
            for worker in workers:
                worker.join(10)
    assert statuses == [EXIT_CLEAN] and not any(worker.is_alive() for worker in workers)
    assert block.state == STATE_STOPPING
