"""A name server is ready, and alive, as long as it answers a route request of its own."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from ringmq.ipc.notify import ServiceManager
from ringmq.namesrv import service_report
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.core import RouteRegistry
from ringmq.namesrv.server import NamesrvServer
from tests.fake_service_manager import FakeServiceManager

WATCHDOG_MS = 200
DEADLINE_S = 20.0


async def heard(manager: FakeServiceManager, key: str) -> dict[str, str]:
    """The first message with `key` among those not looked at yet."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            manager.receive()
            while manager.messages:
                message = manager.messages.pop(0)
                if key in message:
                    return message
            await asyncio.sleep(0.01)  # poll


async def test_it_is_ready_when_it_answers_and_alive_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_report, "ASK_TIMEOUT_S", 0.2)
    manager = FakeServiceManager(tmp_path, WATCHDOG_MS)
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    reporting = asyncio.create_task(
        service_report.report(ServiceManager(manager.environment), RouteRegistry(), "0.0.0.0", port, lambda: False)
    )
    said = await heard(manager, "STATUS")
    status = f"no answer to a route request on 0.0.0.0:{port}: TimeoutError"
    assert said == {"STATUS": status}, "it listens, which is not enough"
    held.set()
    silent.close()
    await silent.wait_closed()

    server = NamesrvServer(NamesrvConfig(listen_port=port))
    await server.start()
    said = await heard(manager, "READY")
    assert said["STATUS"] == f"serving on 0.0.0.0:{port}: 0 brokers, 0 topics"
    await heard(manager, "WATCHDOG")
    await server.close()
    signs = []
    for _ in range(2):  # in the first a question of before may still be answered
        await asyncio.sleep(3 * WATCHDOG_MS / 1000)  # span
        manager.receive()
        signs.append(sum("WATCHDOG" in message for message in manager.messages))
        manager.messages.clear()
    assert signs[1] == 0 and not reporting.done()
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reporting
    manager.close()


async def test_a_name_server_that_its_clients_have_filled_is_ready(tmp_path: Path) -> None:
    manager = FakeServiceManager(tmp_path, WATCHDOG_MS)
    server = NamesrvServer(NamesrvConfig(listen_port=0, max_connections=1))
    port = await server.start()
    _, client = await asyncio.open_connection("127.0.0.1", port)
    while not server.is_full:
        await asyncio.sleep(0.005)  # poll
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
