"""A name server is ready, and alive, as long as it answers a route request of its own."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from ringmq.ipc.notify import ServiceManager
from ringmq.loadtest.stock import free_port
from ringmq.namesrv import service_report
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.core import RouteRegistry
from ringmq.namesrv.server import NamesrvServer
from tests.fake_service_manager import FakeServiceManager
from tests.waiting import until

WATCHDOG_MS = 200
DEADLINE_S = 60.0


async def heard(manager: FakeServiceManager, key: str) -> dict[str, str]:
    """The first message with `key` among those not looked at yet."""

    def taken() -> dict[str, str] | None:
        manager.receive()
        while manager.messages:
            message = manager.messages.pop(0)
            if key in message:
                return message
        return None

    return await until(taken, f"a message with {key}") or {}


async def test_it_is_ready_when_it_answers_and_alive_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The port is below those of outgoing connections: one to a port that nobody has could get it itself."""
    monkeypatch.setattr(service_report, "ASK_TIMEOUT_S", 0.2)
    manager = FakeServiceManager(tmp_path, WATCHDOG_MS)
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    port = free_port()
    silent = await asyncio.start_server(hold, "127.0.0.1", port)
    reporting = asyncio.create_task(
        service_report.report(ServiceManager(manager.environment), RouteRegistry(), "0.0.0.0", port, lambda: False)
    )
    said = await heard(manager, "STATUS")
    status = f"no answer to a route request on 0.0.0.0:{port}: TimeoutError"
    assert said == {"STATUS": status}, "it listens, which is not enough"
    monkeypatch.setattr(service_report, "ASK_TIMEOUT_S", 60.0)
    held.set()
    silent.close()
    await silent.wait_closed()

    server = NamesrvServer(NamesrvConfig(listen_port=port))
    await server.start()
    said = await heard(manager, "READY")
    assert said["STATUS"] == f"serving on 0.0.0.0:{port}: 0 brokers, 0 topics"
    await heard(manager, "WATCHDOG")
    await server.close()
    while "no answer" not in (await heard(manager, "STATUS"))["STATUS"]:
        pass  # a question of before may still be answered
    refused = len(caplog.records)
    await until(lambda: len(caplog.records) >= refused + 10, "ten more questions are refused")
    manager.receive()
    assert not any("WATCHDOG" in message for message in manager.messages) and not reporting.done()
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reporting
    manager.close()


async def test_a_name_server_that_its_clients_have_filled_is_ready(tmp_path: Path) -> None:
    manager = FakeServiceManager(tmp_path, WATCHDOG_MS)
    server = NamesrvServer(NamesrvConfig(listen_port=0, max_connections=1))
    port = await server.start()
    _, client = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: server.is_full, "the connection is counted")
    reporting = asyncio.create_task(
        service_report.report(
            ServiceManager(manager.environment), server.handlers.registry, "127.0.0.1", port, lambda: server.is_full
        )
    )
    assert "no room for more connections" in (await heard(manager, "READY"))["STATUS"]
    client.close()
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reporting
    await server.close()
    manager.close()


async def test_a_full_name_server_lives(tmp_path: Path) -> None:
    manager = FakeServiceManager(tmp_path, WATCHDOG_MS)
    server = NamesrvServer(NamesrvConfig(listen_port=0, max_connections=1))
    port = await server.start()
    reporting = asyncio.create_task(
        service_report.report(
            ServiceManager(manager.environment), server.handlers.registry, "127.0.0.1", port, lambda: server.is_full
        )
    )
    await heard(manager, "READY")
    while not server.is_full:  # the report's own connection may have been there a moment longer
        _, client = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.02)  # poll
    async with asyncio.timeout(DEADLINE_S):
        while "no room for more connections" not in (await heard(manager, "STATUS"))["STATUS"]:
            pass
    for _ in range(3):
        await heard(manager, "WATCHDOG")
    client.close()
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reporting
    await server.close()
    manager.close()
