"""What the service manager is told about a name server: it answers a route request of its own, now and again.

The first answer makes it ready, each later one feeds the watchdog: a loop that hangs, or a listener that nobody accepts
from, is seen. One that has as many connections as it may have lives, too: a restart would only make all of them anew.
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
    """Until cancelled; nothing where there is no manager. `host` and `port`: where the server listens."""
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
            log.warning("a route request to itself was not answered: %s", why)
            manager.status(f"it does not answer on {host}:{port}: {why}")
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
    """The line of `systemctl status`."""
    return f"serving on {address}: {len(registry.live)} brokers, {len(registry.topics)} topics"


async def ask_for_a_route(host: str, port: int) -> None:
    """One request over a connection of its own; any whole answer will do. OSError, IncompleteReadError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        header = GetRouteInfoRequestHeader(topic=AUTO_CREATE_TOPIC)
        writer.write(encode_frame(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())))
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length)
    finally:
        writer.close()
