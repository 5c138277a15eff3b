"""What no answerer writes about a held poll ends the reader, before it changes anything by it."""

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reader_kit import request, send_frame
from test_asks import ANSWERER, CODE, PLAN, AnswererKit
from test_invariant import ended

from ringmq.native import ffi, lib

HOLD, SEND, RECORDS = lib.RMQ_VERDICT_HOLD, lib.RMQ_VERDICT_SEND, lib.RMQ_VERDICT_RECORDS
ANSWER = b"\0\0\0\x04none"


def hold(ask: bytes, *, answer: bytes = ANSWER, **words: int) -> bytes:
    """The payload of HOLD. `words`: other ones than it has."""
    values = {"slot": 3, "ask_bytes": len(ask), "answer_bytes": len(answer)} | words
    return struct.pack("=IIIIq", *values.values(), 0, time.monotonic_ns() + 60_000_000_000) + ask + answer


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in its head": lambda ask: hold(ask)[:23],
    "cut at its end": lambda ask: hold(ask)[:-1],
    "longer": lambda ask: hold(ask) + b"x",
    "a slot beyond the table": lambda ask: hold(ask, slot=lib.RMQ_HELD_SLOTS),
    "another ask": lambda ask: hold(ask[:-1]),
    "sizes that are not its own": lambda ask: hold(ask, answer_bytes=len(ANSWER) + 1),
    "sizes beyond 32 bits": lambda ask: hold(ask, answer_bytes=2**32 - len(ask)),
    "no answer for the deadline": lambda ask: hold(ask, answer=b""),
    "an answer that is no frame": lambda ask: hold(ask, answer=b"\0\0\0\x03non"),
}


def outcome(
    tmp_path: Path, frame: bytes, answerer: int, say: Callable[[AnswererKit, Any, bytes], None]
) -> tuple[int, str]:
    """How a reader ends that takes the verdicts of `say` about this request."""
    kit = AnswererKit(tmp_path, answerers=(PLAN,))

    def work() -> None:
        kit.begin()
        reader = lib.rmq_reader_open(kit.plane, 0, *(one.fileno() for one in kit.listeners), ffi.new("int *"))
        with socket.create_connection(kit.listeners[0].getsockname()) as client:
            client.sendall(frame)
            while (taken := kit.inbox_take(answerer)) is None:
                lib.rmq_reader_run(reader, 1_000_000)
            say(kit, *taken)
            lib.rmq_reader_run(reader, 1_000_000)

    found = ended(work, kit)
    kit.close()
    return found


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_hold(tmp_path: Path, name: str) -> None:
    status, said = outcome(
        tmp_path, request(CODE, {}), ANSWERER,
        lambda kit, record, ask: kit.verdict(record, HOLD, DAMAGE[name](ask), answerer=ANSWERER),
    )  # fmt: skip
    assert (status, "held_asks.c" in said) == (lib.RMQ_EXIT_INVARIANT, True), said


def test_a_send_is_not_held(tmp_path: Path) -> None:
    """Its frame is kept for REDO."""
    status, said = outcome(
        tmp_path, send_frame("Nowhere", b"x"), 0, lambda kit, record, ask: kit.verdict(record, HOLD, hold(ask))
    )
    assert (status, "frame_length" in said) == (lib.RMQ_EXIT_INVARIANT, True), said


@pytest.mark.parametrize(
    ("kind", "payload", "last"),
    [(SEND, ANSWER, 0), (HOLD, b"", 1), (lib.RMQ_VERDICT_PAYLOAD, b"", 1), (99, b"", 1)],
    ids=["a chunk", "held twice", "of a role", "unknown"],
)
def test_a_damaged_verdict_of_a_held_poll(tmp_path: Path, kind: int, payload: bytes, last: int) -> None:
    def say(kit: AnswererKit, record: Any, ask: bytes) -> None:
        kit.verdict(record, HOLD, hold(ask), answerer=ANSWERER, serial=8)
        kit.verdict(record, kind, payload, last, pending=3, answerer=ANSWERER, serial=8, held=True)

    status, said = outcome(tmp_path, request(CODE, {}), ANSWERER, say)
    assert (status, "held_asks.c" in said) == (lib.RMQ_EXIT_INVARIANT, True), said


def test_what_an_answerer_writes_does_not(tmp_path: Path) -> None:
    """The same words, sound."""

    def say(kit: AnswererKit, record: Any, ask: bytes) -> None:
        kit.verdict(record, HOLD, hold(ask), answerer=ANSWERER, serial=8)
        kit.verdict(record, lib.RMQ_VERDICT_DROP, pending=3, answerer=ANSWERER, serial=8, held=True)

    assert outcome(tmp_path, request(CODE, {}), ANSWERER, say) == (0, "")
