"""Requests to a worker that the first of them starts. A busy machine may start it later than a request waits."""

from collections.abc import Mapping

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.raw_client import RawClient

LATE = "process has not started in time, try again"


def ask_started(client: RawClient, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
    """The answer of the worker. A request that its start has not met in time is sent again."""
    while True:
        answer = client.ask(code, fields, body)
        if answer.code != ResponseCode.SYSTEM_BUSY or not (answer.remark or "").endswith(LATE):
            return answer
