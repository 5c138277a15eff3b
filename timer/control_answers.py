"""Requests about timers that control answers: a slave asks for the progress (60), a client recalls on a slave (370)."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from ringmq.broker.requests.guest_answers import ON_SLAVE, ControlParts, Handlers
from ringmq.broker.requests.request import Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.timer.slave_checkpoints import SlaveCheckpoint, SlaveCheckpoints
from ringmq.timer.timer_checkpoint import TimerCheckpoint, checkpoint_for_slaves
from ringmq.timer.timer_sync import encode_fields

RECALL_FORBIDDEN = "recall failed, operation is forbidden: recallMessageEnable is false"
LOG_TOO_SHORT = "the slave's log does not have the timer messages that are delivered yet, ask again later"


def answers(parts: ControlParts) -> Handlers:
    """The requests that control answers. 370 comes to control of a slave alone."""
    found = TimerAnswers(parts)
    return {RequestCode.GET_TIMER_CHECK_POINT: found.checkpoint, RequestCode.RECALL_MESSAGE: found.recall_on_slave}


class TimerAnswers(Struct, frozen=True):
    """The handlers. The worker `timer` writes timercheck. That of a slave is its master's."""

    parts: ControlParts
    checkpoints: SlaveCheckpoints = field(default_factory=SlaveCheckpoints)

    def checkpoint(self, request: Request) -> Answer:
        """60. Without a timer message all slots before now are delivered. A stock slave gets what its log has."""
        live = self.parts.live
        found = checkpoint_for_slaves(Path(live.config.store_path_root_dir))
        if found is None:
            read_ms = request.now_ms - request.now_ms % live.config.timer_precision_ms
            return request.reply(body=TimerCheckpoint(read_ms, timestamp_ms=self.parts.started_ms).encode())
        known = found.checkpoint
        self.checkpoints.add(
            SlaveCheckpoint(known, self.parts.log_end() if found.marks_from is None else found.marks_from)
        )
        ends = self.parts.stock_slave_ends(request.connection.host) if live.is_master else None
        if ends is None:
            return request.reply(ext_fields=encode_fields(found), body=known.encode())
        fitting = self.checkpoints.newest(ends)
        if fitting is None:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, LOG_TOO_SHORT)
        return request.reply(body=fitting.encode())

    def recall_on_slave(self, request: Request) -> Answer:
        """370, answered as stock's `RecallMessageProcessor` does."""
        if not self.parts.live.config.recall_message_enable:
            return request.reply(ResponseCode.NO_PERMISSION, RECALL_FORBIDDEN)
        return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, f"recall failed, {ON_SLAVE}")
