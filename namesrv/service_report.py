"""Reports a name server to the service manager, by answers to periodic route requests of its own.

The first answer makes the service ready. Each later answer feeds the watchdog, which detects a hung event loop and a
listener that accepts nothing. A server with all allowed connections counts as alive: a restart would only make its
clients connect again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ringmq.ipc.notify import ServiceManager
from ringmq.namesrv.core import RouteRegistry
from ringmq.remoting.address import host_from_here
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.names import AUTO_CREATE_TOPIC
from ringmq.remoting.namesrv_headers import GetRouteInfoRequestHeader

log = logging.getLogger("ringmq.namesrv")

ASK_EVERY_S = 5.0
ASK_TIMEOUT_S = 3.0
SIGNS_PER_LIMIT = 4


async def report(
    manager: ServiceManager, registry: RouteRegistry, host: str, port: int, is_full: Callable[[], bool]
) -> None:
    """Report until cancelled. Does nothing without a service manager. The server listens on `host`:`port`."""
    if not manager.is_there:
        return
    pause_s = min(ASK_EVERY_S, manager.watchdog_ms / 1000 / SIGNS_PER_LIMIT) if manager.watchdog_ms else ASK_EVERY_S
    is_ready = False
    while True:
        try:
            await asyncio.wait_for(ask_for_a_route(host_from_here(host), port), ASK_TIMEOUT_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            if is_full():
                text = f"{status_text(registry, f'{host}:{port}')}; no room for more connections"
                is_ready = _tell_served(manager, text, is_ready)
                await asyncio.sleep(pause_s)
                continue
            why = str(error) or type(error).__name__  # an exception without words is true all the same
            log.warning("the name server does not answer its own route request: %s", why)
            manager.status(f"no answer to a route request on {host}:{port}: {why}")
        else:
            is_ready = _tell_served(manager, status_text(registry, f"{host}:{port}"), is_ready)
        await asyncio.sleep(pause_s)


def _tell_served(manager: ServiceManager, text: str, is_ready: bool) -> bool:
    if is_ready:
        manager.alive()
        manager.status(text)
    else:
        manager.ready(text)
    return True


def status_text(registry: RouteRegistry, address: str) -> str:
    """Return the status line of `systemctl status`."""
    return f"serving on {address}: {len(registry.live)} brokers, {len(registry.topics)} topics"


async def ask_for_a_route(host: str, port: int) -> None:
    """Send one request over a new connection. Any whole answer counts. Raises OSError, IncompleteReadError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        header = GetRouteInfoRequestHeader(topic=AUTO_CREATE_TOPIC)
        writer.write(encode_frame(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())))
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length)
    finally:
        writer.close()
