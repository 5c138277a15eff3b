"""Requests of slaves beside 21, 43 and 201: delay offsets (45), timer (60, 61), request modes (402).

POP is not built yet. The answer to 402 is that of a stock broker without any, so that a slave's passes succeed. The
workers `delay` and `timer` write delayOffset.json, timercheck and timermetrics. Those of a slave are its master's.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication.view import ReplicationView
from ringmq.broker.requests.request import REJECTED, Answer, Request
from ringmq.broker.tables.passthrough_file import PassthroughFile
from ringmq.ha.control_messages import STOCK_BROKER_ID
from ringmq.ha.slave_checkpoints import SlaveCheckpoint, SlaveCheckpoints
from ringmq.ha.timer_sync import encode_fields
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion
from ringmq.store.timer_checkpoint import TimerCheckpoint, checkpoint_for_slaves

RECALL_FORBIDDEN = "recall failed, operation is forbidden: recallMessageEnable is false"
LOG_TOO_SHORT = "the slave's log does not have the timer messages that are delivered yet, ask again later"
ON_SLAVE = "service not available now: this broker is a slave, send to its master"


class SlaveRequests(Struct, frozen=True):
    """The handlers of a stock slave's requests, with the parts that they need."""

    identity: Identity
    live: LiveConfig
    delay_file: PassthroughFile
    timer_counts: PassthroughFile
    replicas: ReplicationView
    checkpoints: SlaveCheckpoints = field(default_factory=SlaveCheckpoints)

    def delay_offsets(self, request: Request) -> Answer:
        """45."""
        text = self.delay_file.read()
        if text is not None:
            return request.reply(body=text.encode())
        return request.reply(body=json_body.write_body({"dataVersion": self._version(), "offsetTable": {}}))

    def timer_checkpoint(self, request: Request) -> Answer:
        """60. Without a timer message all slots before now are delivered. A stock slave gets what its log has."""
        config = self.live.config
        found = checkpoint_for_slaves(Path(config.store_path_root_dir))
        if found is None:
            read_ms = request.now_ms - request.now_ms % config.timer_precision_ms
            return request.reply(body=TimerCheckpoint(read_ms, timestamp_ms=self.identity.started_ms).encode())
        known, log_end = found.checkpoint, self.replicas.marks().append_offset
        self.checkpoints.add(SlaveCheckpoint(known, log_end if found.marks_from is None else found.marks_from))
        ends = self._stock_slave_ends(request.connection.host)
        if ends is None:
            return request.reply(ext_fields=encode_fields(found), body=known.encode())
        fitting = self.checkpoints.newest(ends)
        if fitting is None:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, LOG_TOO_SHORT)
        return request.reply(body=fitting.encode())

    def _stock_slave_ends(self, host: str) -> list[int] | None:
        """Ends of the logs of stock slaves at a host, or of all if none is connected from there. None: the slave is of
        RingMQ, or this broker is no master."""
        if self.live.is_slave:
            return None
        peers = self.replicas.peers()
        at_host = [peer for peer in peers if peer.address.rpartition(":")[0] == host] or peers
        stock = [peer.reported_offset for peer in at_host if peer.broker_id == STOCK_BROKER_ID]
        return None if at_host and not stock else stock

    def timer_metrics(self, request: Request) -> Answer:
        """61."""
        text = self.timer_counts.read()
        if text is not None:
            return request.reply(body=text.encode())
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


def recall(live: LiveConfig, request: Request) -> Answer:
    """370 on a slave, answered as stock's `RecallMessageProcessor` does."""
    if not live.config.recall_message_enable:
        return request.reply(ResponseCode.NO_PERMISSION, RECALL_FORBIDDEN)
    return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, f"recall failed, {ON_SLAVE}")
