"""Requests of the broker to clients: numbers that no other process of control has given."""

from typing import cast

from ringmq.broker.requests.request import OPAQUE_MAX, Connection, Outbox
from ringmq.remoting.command import RemotingCommand

PUSHES = 1000


def opaques(generation: int) -> set[int]:
    outbox = Outbox()
    outbox.begin_opaques(generation)
    connection = cast(Connection, None)
    return {outbox.push(connection, RemotingCommand.request(40, {})) for _ in range(PUSHES)}


def test_processes_of_control_give_other_numbers() -> None:
    first, second, last = opaques(1), opaques(2), opaques((1 << 32) - 1)
    assert len(first | second | last) == 3 * PUSHES
    assert all(0 <= opaque <= OPAQUE_MAX for opaque in first | second | last)
