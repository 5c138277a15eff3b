"""`ringmq group mode`: whether a group pulls the messages of a topic or pops them, for clients that ask brokers for
their queues."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from ringmq.cli.access import Access, client_options, in_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, no_group, no_route, open_admin
from ringmq.cli.arguments import Seconds
from ringmq.cli.output import print_rows, say
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.client.namespaces import with_namespace
from ringmq.remoting.assignment_bodies import POP, PULL, RequestMode, read_modes
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.json_body import read_large, write_body
from ringmq.remoting.properties_text import parse_properties

ASK_S = 0.5
WAIT_S_MAX = 86_400
COLUMNS = ("broker", "address", "mode", "shareQueues", "source")
SET, DEFAULT = "set", "defaultMessageRequestMode"
"""Sources of a mode."""
_BEHIND = {
    POP: "messages that members have pulled and not committed come again",
    PULL: "open messages stay with their consumers; without an acknowledgement they come again at their time",
}


@click.command()
@click.argument("name")
@click.argument("topic")
@click.argument("wanted", required=False, type=click.Choice(["pull", "pop"]), metavar="[pull|pop]")
@click.option(
    "--share-queues", type=click.IntRange(0, (1 << 31) - 1), metavar="N",
    help="Of pop: a member shares the queues of N others; 0: each member has all queues.",
)  # fmt: skip
@click.option(
    "--wait", "wait_s", type=Seconds(0, WAIT_S_MAX), default=60, show_default=True, metavar="SECONDS",
    help="Time for the check points of open messages, before the group pulls.",
)  # fmt: skip
@client_options
def mode(
    name: str, topic: str, wanted: str | None, share_queues: int | None, wait_s: float, access: Access, output: str
) -> None:
    """Show or set the request mode of a group and a topic, on each master.

    Clients that ask brokers for their queues obey the mode, such as RocketMQ's with setClientRebalance(false). They
    learn of a new one within 20 s.
    """
    if share_queues is not None and wanted != "pop":
        raise click.UsageError("--share-queues belongs to the mode pop")
    choice = None if wanted is None else wanted.upper()
    rows = run(_mode(access, name, topic, choice, share_queues, wait_s))
    print_rows(output, rows, COLUMNS)
    if output == "table" and choice is not None:
        say(f"members learn of it within 20 s; {_BEHIND[choice]}")


async def _mode(
    access: Access, name: str, topic: str, wanted: str | None, share: int | None, wait_s: float
) -> list[dict[str, Any]]:
    """A row for each master of the topic. Raises `RingmqError`, and ValueError with the masters that have changed."""
    async with open_admin(access.namesrv, access.settings) as admin:
        masters = await _masters(admin, topic)
        if name not in await admin.groups():
            raise ValueError(f"{no_group(name)}, make it with ringmq group create {name}")
        pair = (with_namespace(admin.namespace, topic), with_namespace(admin.namespace, name))
        rows: list[dict[str, Any]] = []
        try:
            for broker, address in masters.items():
                known, source = await _known(admin, address, pair)
                if wanted is not None:
                    number = known.pop_share_queue_num if share is None else share
                    known, source = RequestMode(*pair, wanted, number), SET
                    await _set(admin, address, known, wait_s)
                rows.append(_row(broker, address, known, source))
        except (RingmqError, ValueError) as error:
            done = f"; the mode is set on {', '.join(row['broker'] for row in rows)}" if wanted and rows else ""
            raise ValueError(f"{broker}: {in_options(str(error))}{done}") from error
    return rows


async def _masters(admin: Admin, topic: str) -> dict[str, str]:
    """Broker name -> address of the masters of a topic. Raises ValueError if one has none."""
    route = await admin.route(topic)
    if route is None:
        raise ValueError(no_route(topic))
    brokers = sorted(route.broker_datas, key=lambda broker: broker.broker_name)
    missing = [broker.broker_name for broker in brokers if broker.master_addr is None]
    if missing:
        raise ValueError(f"no master of {', '.join(missing)} is registered, and slaves take their modes from masters")
    return {broker.broker_name: broker.master_addr or "" for broker in brokers}


async def _known(admin: Admin, address: str, pair: tuple[str, str]) -> tuple[RequestMode, str]:
    """The mode of topic and group at a broker, and where it comes from."""
    answer = await admin.client.call(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, timeout_ms=TIMEOUT_MS)
    for known in read_modes(read_large(answer.body, "MessageRequestModeSerializeWrapper"), lambda line: None):
        if (known.topic, known.group) == pair:
            return known, SET
    answer = await admin.client.call(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=TIMEOUT_MS)
    config = {line.name: line.value for line in parse_properties(answer.body.decode("utf-8", "replace"))}
    if config.get("defaultMessageRequestMode", PULL) == PULL:
        return RequestMode(*pair), DEFAULT
    return RequestMode(*pair, POP, int(config.get("defaultPopShareQueueNum", "-1"))), DEFAULT


async def _set(admin: Admin, address: str, mode: RequestMode, wait_s: float) -> None:
    """Set a mode. A broker that writes check points of open messages meanwhile says so, and is asked again."""
    end_s, told, body = time.monotonic() + wait_s, "", write_body(mode.to_json())
    while True:
        try:
            await admin.client.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_BUSY:
                raise
            if time.monotonic() >= end_s:
                raise ValueError(f"{error}; after {wait_s:g} s the mode has not changed: see --wait") from error
            if str(error) != told:
                told = str(error)
                say(told, err=True)
            await asyncio.sleep(ASK_S)
        else:
            return


def _row(broker: str, address: str, mode: RequestMode, source: str) -> dict[str, Any]:
    """`shareQueues` is None for PULL, 0 for all queues."""
    share = max(0, mode.pop_share_queue_num) if mode.mode == POP else None
    return {"broker": broker, "address": address, "mode": mode.mode, "shareQueues": share, "source": source}
