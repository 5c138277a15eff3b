"""Requests about POP that control answers: those of consumers on a slave, and those of slaves on their master."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ControlParts, Handlers
from ringmq.pop import on_slave
from ringmq.pop.copy_source import CopySource
from ringmq.remoting.codes import RequestCode


def answers(parts: ControlParts) -> Handlers:
    """The handlers. Requests of consumers come to control of a slave alone."""
    return {**dict.fromkeys(on_slave.CODES, on_slave.refuse), RequestCode.POP_PROGRESS: CopySource(parts).answer}
