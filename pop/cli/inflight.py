"""`ringmq group inflight`: the messages that consumers of a group have popped and not acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ringmq.cli.access import Access, client_options, in_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, no_group, no_route, open_admin
from ringmq.cli.output import print_rows, say
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.client.namespaces import without_namespace
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.pop_bodies import ROWS_MAX, PopInflight

OLDEST = ("topic", "queueId", "queueOffset", "messages", "attempts", "ageMs", "dueInMs", "client")
QUEUES = ("topic", "queueId", "messages", "oldestMs", "dueInMs")
CLIENTS = ("client", "messages", "oldestMs", "dueInMs")
_UNKNOWN = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST)


@click.command()
@click.argument("name")
@click.option("--topic", help="Only this topic, with messages of it that came again.")
@click.option("--rows", type=click.IntRange(1, ROWS_MAX), default=10, show_default=True, help="Rows of each list.")
@client_options
def inflight(name: str, topic: str | None, rows: int, access: Access, output: str) -> None:
    """Show what a group has popped and not acknowledged: the oldest pops, queues, clients."""
    found = run(_inflight(access, name, topic, rows))
    if output == "json":
        print_rows(output, found, [])
        return
    for number, entry in enumerate(found):
        if number:
            say()
        _print(entry)


# ---- asking ----


async def _inflight(access: Access, name: str, topic: str | None, rows: int) -> list[dict[str, Any]]:
    """An entry for each master that knows the group, or cannot answer. Raises `RingmqError`."""
    async with open_admin(access.namesrv, access.settings) as admin:
        brokers = (await admin.cluster_info()).brokers
        names = {data.master_addr: broker for broker, data in brokers.items()}
        members = await _members(admin, name)
        found = []
        for address in await admin.masters():
            entry: dict[str, Any] = {"broker": names.get(address, address), "address": address}
            try:
                answer = await _ask(admin, address, name, topic, rows)
            except RingmqError as error:
                if isinstance(error, BrokerError) and error.code in _UNKNOWN:
                    continue
                entry["error"] = _why(error)
            else:
                entry |= with_members(answer.to_json(), members, admin.namespace)
            found.append(entry)
        if not found:
            if name not in await admin.groups():
                raise ValueError(no_group(name))
            raise ValueError(no_route(topic or ""))
        if all("error" in entry for entry in found):
            raise ValueError("; ".join(f"{entry['broker']} {entry['address']}: {entry['error']}" for entry in found))
    return found


async def _ask(admin: Admin, address: str, name: str, topic: str | None, rows: int) -> PopInflight:
    fields = {"consumerGroup": name, "maxRows": str(rows)} | ({"topic": topic} if topic else {})
    answer = await admin.client.call(address, RequestCode.POP_INFLIGHT, fields, timeout_ms=TIMEOUT_MS)
    return PopInflight.decode(answer.body)


async def _members(admin: Admin, name: str) -> dict[str, str]:
    """HOST:PORT -> client id of the members that are connected, as far as brokers say."""
    try:
        online = await admin.connections(name)
    except RingmqError:
        return {}
    return {one.client_addr: one.client_id for one in online.connections} if online else {}


def with_members(answer: dict[str, Any], members: Mapping[str, str], namespace: str) -> dict[str, Any]:
    """The answer with client ids beside the addresses of members, and topics as clients of the namespace name them."""
    for row in (*answer["oldest"], *answer["clients"]):
        if (client_id := members.get(row["client"])) is not None:
            row["clientId"] = client_id
    for row in (*answer["oldest"], *answer["queues"]):
        row["topic"] = without_namespace(namespace, row["topic"])
    return answer


def _why(error: RingmqError) -> str:
    if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "it does not know this request; RocketMQ and older versions tell no open messages"
    return in_options(str(error))


# ---- printing ----


def _print(entry: dict[str, Any]) -> None:
    head = f"{entry['broker']} {entry['address']}"
    if "error" in entry:
        say(f"{head}: {entry['error']}")
        return
    say(f"{head}: {entry['messages']} open messages of {entry['pops']} pops")
    if entry["due"]:
        say(f"of them {entry['due']} whose time is over: their copies are on their way")
    if entry["returned"]:
        say(f"beside them {entry['returned']} that no client has received: the next pop begins with them")
    _print_list("oldest pops", entry["oldest"], OLDEST, entry["pops"])
    _print_list("queues", entry["queues"], QUEUES, entry["queueCount"])
    _print_list("clients", entry["clients"], CLIENTS, entry["clientCount"])


def _print_list(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], count: int) -> None:
    """A list with its title, and a line that says how many rows it lacks."""
    if not rows:
        return
    say()
    say(f"{title}:")
    shown = [{**row, "client": _client(row), "attempts": row.get("attempts") or None} for row in rows]
    print_rows("table", shown, columns)
    if count > len(rows):
        say(f"... and {count - len(rows)} more, see --rows")


def _client(row: Mapping[str, Any]) -> str | None:
    address, client_id = row.get("client") or None, row.get("clientId")
    return f"{client_id} ({address})" if client_id else address
