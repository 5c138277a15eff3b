"""What a pull's answer says beside its messages: where the client is to read next, and what a slave makes of a pull
that found nothing (`PullMessageProcessor.composeResponseHeader`, `DefaultPullMessageResultHandler`).

Differences from stock: whether a master is there is what the name servers say now (stock's slave takes it for granted
unless it may act as master), and a slave without one lets a pull wait where stock answers "again, at once".
The read workers do the same in C (native/src/reader_pull.c).
"""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.tables.ports import PlanePort
from ringmq.remoting.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Member:
    """This broker's place in its group. `master_known`: on a slave, whether consumers may be sent to a master."""

    broker_id: int
    is_slave: bool
    master_known: bool
    slave_read_enable: bool
    offset_check_in_slave: bool


def member_of(config: BrokerConfig, plane: PlanePort) -> Member:
    """This broker's place in its group, as of now."""
    return Member(
        config.broker_id,
        config.broker_role == "SLAVE",
        bool(plane.header.replication.master_known),
        config.slave_read_enable,
        config.offset_check_in_slave,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """What the store has for a pull: code and next offset by the rules of a master. `is_slow`: what was found lies
    further back than memory reaches."""

    code: int
    asked_offset: int
    next_offset: int
    is_slow: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """Code, next offset and suggestWhichBrokerId of the answer."""

    code: int
    next_offset: int
    suggested_broker_id: int


def advise(member: Member, found: Finding, slow_broker_id: int, group_broker_id: int) -> Advice:
    """`slow_broker_id` is the group's whichBrokerWhenConsumeSlowly, `group_broker_id` its brokerId."""
    code, next_offset = found.code, found.next_offset
    if member.is_slave and code != ResponseCode.SUCCESS:
        if code == ResponseCode.PULL_OFFSET_MOVED and not member.offset_check_in_slave:
            code, next_offset = ResponseCode.PULL_NOT_FOUND, found.asked_offset
        if member.master_known and not found.is_slow:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    suggested = slow_broker_id if found.is_slow else group_broker_id
    if not member.slave_read_enable or (member.broker_id and not found.is_slow and member.master_known):
        suggested = 0
    return Advice(int(code), next_offset, suggested)
