"""Kinds of honest requests that run beside attacks on the shares of clients.

A kind is an object that is called with a function: it sends a request on the lane's connection and returns the answer,
or raises WrongAnswerError for another code than 0 and the given ones. A call may send several requests, and a failed
one is repeated. The lane's name is part of all its names, so lanes do not meet.
"""

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

from ringmq.loadtest.siege.requests import heartbeat, lock_body, pull, request, send, sql_consumer
from ringmq.remoting import heartbeat as heartbeats
from ringmq.remoting import staged_writes
from ringmq.remoting.batch import encode_batch
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import MessageSysFlag
from ringmq.remoting.message import Message, decode_messages
from ringmq.remoting.message_id import decode_offset_id
from ringmq.remoting.properties import encode_properties
from ringmq.remoting.staged_writes import STAGED_TOPIC, CommitRequest, StagedChunk

TOPICS = 500
"""Topics that a lane of administrators makes before it sets them again: more than it makes during an attack."""
LOCKED_QUEUES = 4
DUE_S = 3600
HOLD_MS = 500
"""Time in which a message must be readable after its answer."""


class WrongAnswerError(Exception):
    """The broker gave another answer than expected."""


class Ask(Protocol):
    """Sends a request; see the module."""

    def __call__(self, data: bytes, *right: int) -> RemotingCommand: ...


def topic_of(kind: str) -> str:
    """Return the topic of a kind's lanes."""
    return f"Canary-{kind}"


def group_of(kind: str) -> str:
    """Return the group of a kind's lanes."""
    return f"canary-{kind}"


class Kind:
    """The names of a lane. The lane on new connections has queue 1, the other one queue 0."""

    def __init__(self, name: str, broker_name: str) -> None:
        self.name = name
        kind, _, age = name.rpartition("-")
        self.topic, self.group, self.queue_id = topic_of(kind), group_of(kind), int(age == "new")
        self.broker_name = broker_name
        self.number = 0


class AdministratorTopic(Kind):
    """17 of a topic that does not exist."""

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        fields = {
            "topic": f"{self.name}-{self.number % TOPICS}", "defaultTopic": "TBW102", "readQueueNums": 1,
            "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
        self.number += 1


class Lock(Kind):
    """An orderly consumer locks all queues of a topic (41), and leaves them (42)."""

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        body = lock_body(self.broker_name, self.topic, range(LOCKED_QUEUES), self.name, self.name)
        held = heartbeats.decode_locked(ask(request(RequestCode.LOCK_BATCH_MQ, body=body)).body)
        if len(held) != LOCKED_QUEUES:
            raise WrongAnswerError(f"{len(held)} of {LOCKED_QUEUES} queues are locked")
        ask(request(RequestCode.UNLOCK_BATCH_MQ, body=body))


class SqlConsumer(Kind):
    """A consumer with an SQL92 expression of its own joins (34), pulls (11) and leaves (35)."""

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        client = f"{self.name}-{self.number}"
        self.number += 1
        expression = f"honest = {self.number} AND lane = '{self.name}'"
        ask(heartbeat(client, [sql_consumer(self.name, [(self.topic, expression)], self.number)]))
        ask(pull(self.topic, self.queue_id, group=self.name, sysFlag=0, subVersion=self.number), 19)
        ask(request(RequestCode.UNREGISTER_CLIENT, {"clientID": client, "consumerGroup": self.name}))


class Reading(Kind):
    """A kind whose messages become readable in a queue of its own."""

    def __init__(self, name: str, broker_name: str) -> None:
        super().__init__(name, broker_name)
        self.offset = 0

    def next_bodies(self, ask: Ask) -> list[bytes]:
        """Return the next messages. Raises WrongAnswerError if none comes in time."""
        answer = ask(pull(self.topic, self.queue_id, self.offset, hold_ms=HOLD_MS, group=self.group), 19)
        messages = list(decode_messages(answer.body)) if answer.code == 0 else []
        if not messages:
            raise WrongAnswerError(f"offset {self.offset} is not readable")
        self.offset = messages[-1].queue_offset + 1
        return [bytes(message.body) for message in messages]


class Transaction(Reading):
    """A half (310) and its commit (37), which must be answered 0 and publish the message."""

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        body = f"{self.name}-{self.number}".encode()
        self.number += 1
        pairs = encode_properties({"TRAN_MSG": "true", "PGROUP": self.group, "UNIQ_KEY": body.decode()})
        half = ask(send(body, self.topic, self.queue_id, pairs, f=int(MessageSysFlag.TRANSACTION_PREPARED)))
        fields = {
            "topic": self.topic, "producerGroup": self.group, "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": decode_offset_id(half.ext_fields["msgId"])[2],
            "commitOrRollback": int(MessageSysFlag.TRANSACTION_COMMIT), "fromTransactionCheck": "false",
            "msgId": body.decode(), "transactionId": body.decode(),
        }  # fmt: skip
        ask(request(RequestCode.END_TRANSACTION, fields))
        while body not in self.next_bodies(ask):
            pass


class SendBack(Kind):
    """A consumer sends a message back (36)."""

    def __init__(self, name: str, broker_name: str) -> None:
        super().__init__(name, broker_name)
        self._fields: Mapping[str, object] = {}

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        if not self._fields:
            stored = ask(send(b"again", self.topic, self.queue_id))
            message_id = stored.ext_fields["msgId"]
            self._fields = {
                "offset": decode_offset_id(message_id)[2], "group": self.group, "delayLevel": 1,
                "originMsgId": message_id, "originTopic": self.topic, "unitMode": "false", "maxReconsumeTimes": 16,
            }  # fmt: skip
        ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, self._fields))


class Recall(Kind):
    """A message that is due in an hour (310), and its recall (370)."""

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        due_ms = int(1000 * (time.time() + DUE_S))
        pairs = encode_properties({"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"{self.name}-{self.number}"})
        self.number += 1
        handle = ask(send(b"later", self.topic, self.queue_id, pairs)).ext_fields["recallHandle"]
        fields = {"producerGroup": self.group, "topic": self.topic, "recallHandle": handle}
        ask(request(RequestCode.RECALL_MESSAGE, fields))


class StagedWriter(Reading):
    """A writer of micro-batches: each is committed twice (270001), and must come whole and once."""

    def __init__(self, name: str, broker_name: str) -> None:
        super().__init__(name, broker_name)
        self._query_id = f"secret-of-{name}-{time.time_ns():x}"
        self._is_described = False

    def __call__(self, ask: Ask) -> None:
        """See the module."""
        if not self._is_described:
            ask(request(RequestCode.STAGED_WRITES, {"operation": staged_writes.DESCRIBE}))
            self._is_described = True
        row = f"row {self.number}".encode()
        commit = request(RequestCode.STAGED_WRITES, {"operation": staged_writes.COMMIT}, self._stage(ask, row))
        ask(commit)
        ask(commit)
        found = self.next_bodies(ask)
        if found != [row]:
            self.offset -= len(found)
            raise WrongAnswerError(f"{found[0]!r} instead of {row!r}, {len(found)} rows")
        self.number += 1

    def _stage(self, ask: Ask, row: bytes) -> bytes:
        """Stage a chunk of one row. Return the body of its commit."""
        chunk = encode_batch([Message(self.topic, row)])
        crc = zlib.crc32(chunk) & 0x7FFFFFFF
        said = StagedChunk(0, 0, 0, 0, len(chunk), crc)
        pairs = encode_properties(said.properties(self._query_id, self.number, self.topic, self.queue_id))
        message_id = ask(send(chunk, STAGED_TOPIC, self.queue_id, pairs)).ext_fields["msgId"]
        staged = StagedChunk(0, 0, 0, decode_offset_id(message_id)[2], len(chunk), crc)
        return CommitRequest(self._query_id, self.number, (staged,)).encode()


HONEST: Mapping[str, Callable[[str, str], Callable[[Ask], None]]] = {
    "admin-topic": AdministratorTopic,
    "lock": Lock,
    "sql-consumer": SqlConsumer,
    "transaction": Transaction,
    "send-back": SendBack,
    "recall": Recall,
    "staged-writer": StagedWriter,
}
"""All kinds by name."""
