"""What a stock slave asks for beside 21, 43 and 201: delay offsets (45), timer (60, 61), request modes (402).

Delayed and timed messages and POP do not exist here yet: the answers are those of a stock broker that has none, so
that a slave's passes end well. A delayOffset.json that the store has is handed on as it is.
"""

from __future__ import annotations

import struct

from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Answer, Request
from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion

TIMER_CHECKPOINT = struct.Struct(">7q")
"""lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, masterTimerQueueOffset, then the data version: state
version, timestamp, counter (the format of the file `timercheck`)."""
TIMER_PRECISION_MS = 1000


def delay_offsets(broker: Broker, request: Request) -> Answer:
    """45."""
    text = broker.delay_offsets
    if text is not None:
        return request.reply(body=text.encode())
    return request.reply(body=json_body.write_body({"dataVersion": _version(broker), "offsetTable": {}}))


def timer_checkpoint(broker: Broker, request: Request) -> Answer:
    """60: a timer that has read up to now and holds nothing."""
    read_ms = request.now_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS
    return request.reply(body=TIMER_CHECKPOINT.pack(read_ms, 0, 0, 0, 0, broker.identity.started_ms, 0))


def timer_metrics(broker: Broker, request: Request) -> Answer:
    """61."""
    return request.reply(body=json_body.write_body({"dataVersion": _version(broker), "timingCount": {}}))


def message_request_modes(broker: Broker, request: Request) -> Answer:
    """402."""
    return request.reply(body=json_body.write_body({"messageRequestModeMap": {}}))


def _version(broker: Broker) -> dict[str, int]:
    return DataVersion(0, 0, broker.identity.started_ms).to_json()
