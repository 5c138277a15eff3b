"""What a service says to its manager, and that it says nothing where there is none."""

import gc
import os
import threading
from pathlib import Path

import pytest

from ringmq.ipc import notify
from ringmq.ipc.fd_store import FdStore
from ringmq.ipc.notify import ServiceManager, service_manager
from tests.fake_service_manager import FakeServiceManager
from tests.waiting import wait_until


def test_without_a_manager_nothing_is_said(tmp_path: Path) -> None:
    manager = ServiceManager({"WATCHDOG_USEC": "1000000"})
    assert not manager.is_there
    assert manager.watchdog_ms == 0
    manager.ready("x")
    manager.alive()
    with manager.extended_timeouts():
        assert threading.active_count() == 1 or all(one.name != "extended-timeouts" for one in threading.enumerate())


def test_messages(tmp_path: Path) -> None:
    fake = FakeServiceManager(tmp_path, watchdog_ms=4000)
    manager = ServiceManager(fake.environment)
    assert manager.watchdog_ms == 4000
    manager.status("two\nlines")
    manager.status("two\nlines")
    manager.ready("serving")
    manager.stopping("bye " + "x" * 1000)
    fake.receive()
    assert fake.messages[0] == {"STATUS": "two lines"}, "one line, and said once"
    assert fake.messages[1] == {"READY": "1", "STATUS": "serving"}
    assert fake.messages[2]["STOPPING"] == "1"
    assert len(fake.messages[2]["STATUS"]) == notify.STATUS_BYTES_MAX
    fake.close()


def test_a_manager_that_is_gone_does_not_hurt(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    manager.ready("serving")
    manager.keep("name", 0)


@pytest.mark.parametrize("text", ["", "abc", "-5"])
def test_a_watchdog_that_is_not_ours_is_ignored(text: str) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": text}).watchdog_ms == 0
    others = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid() + 1)}
    assert ServiceManager(others).watchdog_ms == 0


def test_children_do_not_inherit_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "1000000"), ("LISTEN_FDS", "2")):
        monkeypatch.setenv(name, value)
    assert service_manager().watchdog_ms == 1000
    FdStore.of_this_process(ServiceManager({}))
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"} & os.environ.keys()


@pytest.mark.parametrize("works", [True, False])
def test_more_time_is_asked_for_while_there_is_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr(notify, "STILL_WORKING_EVERY_S", 0.1)
    monkeypatch.setattr(notify, "CPU_MIN_S", 0.05)  # a look of the test takes some milliseconds of a busy machine
    fake = FakeServiceManager(tmp_path)

    def extensions() -> list[dict[str, str]]:
        return [message for message in fake.messages if "EXTEND_TIMEOUT_USEC" in message]

    def work_and_look() -> bool:
        sum(range(500_000))
        fake.receive()
        return bool(extensions())

    gc.disable()  # the garbage of a whole suite is work
    try:
        with ServiceManager(fake.environment).extended_timeouts():
            if works:
                wait_until(work_and_look, "more time is asked for")
            else:
                fake.receive(0.5)  # of one call, as each costs CPU
    finally:
        gc.enable()
    asked = extensions()
    assert bool(asked) == works, "a start that hangs must run into its time limit"
    assert all(message["WATCHDOG"] == "1" for message in asked)
    fake.close()
