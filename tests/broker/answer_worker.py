"""The smallest answerer: it sends bodies of requests of its code back, and sleeps when nobody has asked for a while."""

import os
import sys
import time

from ringmq.broker.requests.records import connection_of, request_of
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Reply
from ringmq.ipc.answerers import AnswerRow
from ringmq.ipc.asks import Inbox
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, Start, StopPhase, WorkerRow
from ringmq.native import lib

CODE = 270_099
IDLE_S = 0.3
HOLD = b"hold"
"""A body that is never answered."""
ANSWERER = WorkerRow(
    "echo", 24, __name__, StopPhase.CONTROL, CpuClass.SERVICE, start=Start.ON_REQUEST, is_optional=True,
    answers=AnswerRow(codes=(CODE,), answer_bytes=1 << 20),
)  # fmt: skip


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Answer until SIGTERM, or until nobody has asked for IDLE_S."""
    inbox = Inbox(plane, spec.role)
    replies = ReplyQueues(plane.readers, inbox)
    ports = {reader.role: reader.port for reader in plane.readers}
    if os.environ.get("ANSWERER_NEVER_BEGINS"):
        while not stop.is_set:
            plane.role(spec.role).progress += 1
            plane.wait(spec.role, 100)
        return EXIT_CLEAN
    inbox.begin()
    idle_since = time.monotonic()
    while not stop.is_set:
        plane.role(spec.role).progress += 1
        replies.send_waiting()
        asked = inbox.take()
        if asked is None and time.monotonic() - idle_since > IDLE_S:
            plane.deactivate(spec.role)
            if (asked := inbox.take()) is None and not inbox.is_blocked:
                return EXIT_RESTED
        if asked is None:
            inbox.unblock()
            plane.wait(spec.role, 10)
            continue
        idle_since = time.monotonic()
        if asked.type != lib.RMQ_INBOX_COLD_FRAME:
            continue
        connection = connection_of(asked, ports[asked.role])
        request = request_of(asked, connection, 0)
        if request.command.body != HOLD:
            replies.perform([Reply(connection, request.pending, request.reply(body=request.command.body))])
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
