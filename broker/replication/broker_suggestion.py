"""The fields of a pull's answer beside its messages: the broker for the next read, and a slave's answer to a pull that
found no message (`PullMessageProcessor.composeResponseHeader`, `DefaultPullMessageResultHandler`).

Differences from stock: the name servers' answers tell if there is a master (stock's slave assumes one unless it may act
as master). A slave without one holds a pull where stock answers "again, at once". The read workers do the same in C
(native/src/reader/pulls.c).
"""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ipc.tenure import is_master
from ringmq.remoting.codes import ResponseCode


class Member(Struct, frozen=True):
    """This broker's side of its group. `master_known`: on a slave, True if consumers may be sent to a master."""

    is_master: bool
    master_known: bool
    slave_read_enable: bool
    offset_check_in_slave: bool


def member_of(config: BrokerConfig, plane: PlaneProtocol) -> Member:
    """This broker's current side of its group."""
    return Member(
        is_master(plane.watermarks),
        bool(plane.header.replication.master_known),
        config.slave_read_enable,
        config.offset_check_in_slave,
    )


class PullFinding(Struct, frozen=True):
    """The result of a pull in the store: code and next offset by the rules of a master. `is_slow`: the messages are
    older than those in memory."""

    code: int
    asked_offset: int
    next_offset: int
    is_slow: bool


class Suggestion(Struct, frozen=True):
    """Code, next offset and suggestWhichBrokerId of the answer."""

    code: int
    next_offset: int
    suggested_broker_id: int


def suggest(member: Member, found: PullFinding, slow_broker_id: int, group_broker_id: int) -> Suggestion:
    """The fields of the answer. `slow_broker_id`: the group's whichBrokerWhenConsumeSlowly. `group_broker_id`: its
    brokerId."""
    code, next_offset = found.code, found.next_offset
    knows_master = not member.is_master and member.master_known
    if not member.is_master and code != ResponseCode.SUCCESS:
        if code == ResponseCode.PULL_OFFSET_MOVED and not member.offset_check_in_slave:
            code, next_offset = ResponseCode.PULL_NOT_FOUND, found.asked_offset
        if knows_master and not found.is_slow:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    suggested = slow_broker_id if found.is_slow else group_broker_id
    if not member.slave_read_enable or (knows_master and not found.is_slow):
        suggested = 0
    return Suggestion(int(code), next_offset, suggested)
