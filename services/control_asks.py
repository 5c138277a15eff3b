"""Asks of services to control: topics that services need (`TopicCreator`), topics of retries, checks of transactions
for producers, replies for requesters, and offsets of the system's groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.asks import AskAnswer
from ringmq.native import lib
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.services.topic_creator import Then

TIMEOUT_MS = 2000
REPLY_TIMEOUT_MS = 12_000
"""Control gives a client 10 s, and looks four times a second."""
LATE = "[OVERLOAD]the broker's control process does not answer services now, try again later"
TOKENS = 1 << 31


class ControlAsker(Protocol):
    """The methods of `ringmq.ipc.asks.Asker` that this module calls."""

    @property
    def has_answers(self) -> bool: ...
    def ask(self, kind: int, pending: int, payload: bytes) -> bool: ...
    def answers(self) -> list[AskAnswer]: ...


class ControlAsks:
    """The asks of one worker to control. An ask without an answer in its time is refused as busy."""

    def __init__(self, asker: ControlAsker) -> None:
        self._asker = asker
        self._token = 0
        self._waiting: dict[int, tuple[int, Then]] = {}
        """Token -> (time of the refusal, callback)."""

    @property
    def has_news(self) -> bool:
        """True if an answer of control waits."""
        return self._asker.has_answers

    @property
    def is_waiting(self) -> bool:
        """True if an ask has no answer yet."""
        return bool(self._waiting)

    def create(self, topics: Sequence[TopicConfig], now_ms: int, then: Then) -> None:
        """See TopicCreator."""
        payload = json_body.write_body({"topics": [topic.to_json() for topic in topics]})
        self._ask(lib.RMQ_INBOX_TOPICS, payload, now_ms, then)

    def retry(self, asked: RetryAsk, now_ms: int, then: Then) -> None:
        """Ask control for a group and its topics of retries. `then` gets None once the plane has what a client may
        make, else a refusal."""
        self._ask(lib.RMQ_INBOX_RETRY, asked.encode(), now_ms, then)

    def check(self, group: str, frame: bytes, now_ms: int, then: Then) -> None:
        """Send a oneway request to one live client of a producer group. Each call takes the group's next client.

        `frame` begins with its length. `then` gets None once control has the request on its way to the client. It gets
        a refusal if the group has no client, or if control is too busy. A client that ends now gets nothing. Raises
        ValueError if the frame is too large for the inbox of control.
        """
        self._ask(lib.RMQ_INBOX_CHECK, ClientRequest(group, frame).encode(), now_ms, then)

    def reply(self, client_id: str, frame: bytes, now_ms: int, then: Then) -> None:
        """Send a reply to the client that has asked for it, by its newest connection as a producer.

        `then` gets None once the client has answered 0, else a refusal, after REPLY_TIMEOUT_MS at the latest. Raises
        ValueError as `check` does.
        """
        self._ask(lib.RMQ_INBOX_REPLY, ClientRequest(client_id, frame).encode(), now_ms, then, REPLY_TIMEOUT_MS)

    def commit_offsets(self, group: str, offsets: Mapping[str, int], now_ms: int, then: Then) -> None:
        """Commit offsets of queue 0 of topics for a group of the system."""
        payload = json_body.write_body({"group": group, "offsets": dict(offsets)})
        self._ask(lib.RMQ_INBOX_OFFSETS, payload, now_ms, then)

    def _ask(self, kind: int, payload: bytes, now_ms: int, then: Then, timeout_ms: int = TIMEOUT_MS) -> None:
        self._token = (self._token + 1) % TOKENS
        if self._asker.ask(kind, self._token, payload):
            self._waiting[self._token] = now_ms + timeout_ms, then
        else:
            then(_refusal(ResponseCode.SYSTEM_BUSY, LATE))

    def turn(self, now_ms: int) -> bool:
        """Pass on answers of control, and refuse asks whose time is over. True if there was any."""
        told = self._asker.answers()
        for answer in told:
            _, then = self._waiting.pop(answer.pending, (0, None))
            if then is not None:
                remark = answer.payload.decode(errors="replace")
                then(_refusal(ResponseCode.SYSTEM_ERROR, remark) if remark else None)
        late = [token for token, (due_ms, _) in self._waiting.items() if now_ms >= due_ms]
        for token in late:
            self._waiting.pop(token)[1](_refusal(ResponseCode.SYSTEM_BUSY, LATE))
        return bool(told or late)


def _refusal(code: int, remark: str) -> RequestError:
    return RequestError(remark, field="", code=code)
