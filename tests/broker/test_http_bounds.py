"""The HTTP port's cores: heads of requests, and which connections stay."""

import random

import pytest

from ringmq.broker.exporter.http_connections import (
    ANSWER_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    STALL_TIMEOUT_S,
    HttpConnections,
    Phase,
)
from ringmq.broker.exporter.http_protocol import HEAD_BYTES_MAX, BadRequest, HttpProtocol, Request


def after(text: bytes) -> HttpProtocol:
    protocol = HttpProtocol()
    protocol.receive(text)
    return protocol


def test_requests_are_taken_one_by_one() -> None:
    protocol = after(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.0\r\n\r\n")
    assert protocol.next_request() == Request("/metrics")
    head = protocol.head(200, "text/plain", None)
    assert b"Transfer-Encoding: chunked\r\n" in head and b"Connection" not in head
    assert b"".join(protocol.piece(memoryview(b"page"))) == b"4\r\npage\r\n"
    assert protocol.end() == b"0\r\n\r\n" and not protocol.is_last
    assert protocol.start_next(), "the next one came together with it"
    assert protocol.next_request() == Request("/", with_body=False)
    assert b"Connection: close\r\n" in protocol.head(200, "text/plain", None)
    assert protocol.end() == b"" and protocol.is_last


def test_half_a_head_is_no_request() -> None:
    assert after(b"GET / HTTP/1.1\r\nHost: a\r\n").next_request() is None


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\0" * 90 + b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"x" * (HEAD_BYTES_MAX + 1), 431),
    ],
)
def test_other_heads_are_refused(head: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        after(head).next_request()
    assert refused.value.status == status


@pytest.mark.parametrize("field", [b"Connection: close", b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_what_comes_with_a_request_ends_the_connection(field: bytes) -> None:
    protocol = after(b"GET / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n")
    assert protocol.next_request() is not None
    assert b"Connection: close\r\n" in protocol.head(404, "text/plain", 0)
    protocol.end()
    assert protocol.is_last


def test_each_phase_has_a_deadline() -> None:
    table = HttpConnections()
    for number in range(4):
        table.opened(number, "10.0.0.1", 0.0)
    table.requested(1, 1.0, Phase.PAGE)
    table.requested(2, 1.0, Phase.ANSWER)
    table.requested(3, 1.0, Phase.ANSWER)
    table.answered(3, 1.0)
    table.received(0, 1.9)  # more of its head gives it no more time
    assert table.overdue(HEAD_TIMEOUT_S - 0.01) == []
    assert table.overdue(HEAD_TIMEOUT_S) == [0]
    table.closed(0)
    assert table.overdue(1.0 + STALL_TIMEOUT_S) == [2]
    table.progressed(2, 20.0)
    assert table.overdue(20.0) == []
    table.progressed(2, 1.0 + ANSWER_TIMEOUT_S)
    assert sorted(table.overdue(1.0 + ANSWER_TIMEOUT_S)) == [1, 2], "bytes now and then do not help"
    table.closed(1)
    table.closed(2)
    assert table.overdue(1.0 + IDLE_TIMEOUT_S) == [3]
    table.received(3, 1.0 + IDLE_TIMEOUT_S)
    assert table.overdue(1.0 + IDLE_TIMEOUT_S + HEAD_TIMEOUT_S) == [3]


def test_the_host_with_most_connections_makes_room() -> None:
    table = HttpConnections(8)
    assert [table.opened(number, "10.0.0.1", number) for number in range(3)] == [None] * 3
    assert table.opened(3, "10.0.0.2", 3) is None
    assert table.opened(4, "10.0.0.3", 4) == 0
    table.closed(0)
    assert table.opened(5, "10.0.0.2", 5) == 1, "two hosts have as many: the older connection"


def test_known_connections_do_not_make_room_for_strangers() -> None:
    table = HttpConnections(8)
    for number in range(4):
        table.opened(number, "10.0.0.1", 0.0)
        table.requested(number, 0.0, Phase.ANSWER)
        table.answered(number, number)
    table.received(0, 5.0)
    for number in range(10, 14):
        assert table.opened(number, "10.0.0.1", 6.0) is None
    assert table.opened(14, "10.0.0.1", 6.0) == 10
    assert table.requested(14, 7.0, Phase.ANSWER) == 1, "the least recently heard of the known ones"


@pytest.mark.parametrize("seed", range(200))
def test_an_honest_client_is_served_under_a_flood(seed: int) -> None:
    """Attackers open, ask, trickle and hold in any order. The honest client's request comes within 20 events."""
    dice = random.Random(seed)
    table, now, numbers, open_now = HttpConnections(64), 0.0, iter(range(10**9)), dict[int, Phase]()

    def close(number: int | None) -> None:
        if number is not None:
            del open_now[number]
            table.closed(number)

    def attack() -> None:
        act = dice.random()
        if act < 0.5 or not open_now:
            number = next(numbers)
            open_now[number] = Phase.HEAD
            close(table.opened(number, f"10.0.{dice.randrange(3)}.1", now))
            return
        number = dice.choice(list(open_now))
        if number == honest:
            return
        if open_now[number] is Phase.HEAD and act < 0.8:
            open_now[number] = Phase.ANSWER
            close(table.requested(number, now, Phase.ANSWER))
        elif open_now[number] is Phase.ANSWER:
            table.progressed(number, now)

    for _ in range(30):
        honest = -1
        for _ in range(200):
            now += 0.0001
            attack()
        honest = next(numbers)
        open_now[honest] = Phase.HEAD
        close(table.opened(honest, "10.1.0.1", now))
        for _ in range(20):
            attack()
        assert honest in open_now
        close(table.requested(honest, now, Phase.ANSWER))
        assert honest in open_now
        table.answered(honest, now)
        for number in table.overdue(now):
            close(number)
        assert len(table) <= 64
