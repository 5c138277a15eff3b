"""Requests of a stock slave beside 21, 43 and 201: delay offsets (45), timer (60, 61), request modes (402).

Timed messages and POP are not built yet. The answers are those of a stock broker without any, so that a slave's passes
succeed. delayOffset.json is the file of the worker `delay`, on a slave that of its master.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ringmq.broker.config.identity import Identity
from ringmq.broker.requests.request import Answer, Request
from ringmq.broker.tables.passthrough_file import PassthroughFile
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion

TIMER_CHECKPOINT = struct.Struct(">7q")
"""lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, masterTimerQueueOffset, then the data version: state
version, timestamp, counter (the format of the file `timercheck`)."""
TIMER_PRECISION_MS = 1000
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
ON_SLAVE = "service not available now: this broker is a slave, send to its master"


@dataclass(frozen=True, slots=True)
class SlaveRequests:
    """The handlers of a stock slave's requests, with the parts that they need."""

    identity: Identity
    delay_file: PassthroughFile

    def delay_offsets(self, request: Request) -> Answer:
        """45."""
        text = self.delay_file.read()
        if text is not None:
            return request.reply(body=text.encode())
        return request.reply(body=json_body.write_body({"dataVersion": self._version(), "offsetTable": {}}))

    def timer_checkpoint(self, request: Request) -> Answer:
        """60: the checkpoint of a timer that has read everything and holds no message."""
        read_ms = request.now_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS
        return request.reply(body=TIMER_CHECKPOINT.pack(read_ms, 0, 0, 0, 0, self.identity.started_ms, 0))

    def timer_metrics(self, request: Request) -> Answer:
        """61."""
        return request.reply(body=json_body.write_body({"dataVersion": self._version(), "timingCount": {}}))

    def _version(self) -> dict[str, int]:
        return DataVersion(0, 0, self.identity.started_ms).to_json()


def message_request_modes(request: Request) -> Answer:
    """402."""
    return request.reply(body=json_body.write_body({"messageRequestModeMap": {}}))


def end_transaction(request: Request) -> Answer:
    """37 on a slave, answered as stock's `EndTransactionProcessor` does. The producer's broker checks again later."""
    return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, ON_SLAVE)


def send_back(request: Request) -> Answer:
    """36 on a slave, answered as stock does (`SendMessageProcessor.rejectRequest`). The consumer sends the retry to the
    master then."""
    return request.reply(ResponseCode.SYSTEM_BUSY, REJECTED)


def staged_writes(request: Request) -> Answer:
    """270001 on a slave. Read workers of a master forward it to the worker `services`, which slaves do not have."""
    return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, ON_SLAVE)
