"""What control and ha say to each other survives the way, and nothing else is taken."""

import json

import pytest

from ringmq.ha.control_messages import (
    JSON_BYTES_MAX,
    Command,
    Identity,
    LinkNews,
    LongerSlave,
    Master,
    MessageError,
    News,
    PeerNews,
    command_bytes,
    command_of,
    news_bytes,
    news_of,
)


@pytest.mark.parametrize(
    "order", [Identity("10.0.0.2", 4000, 1, "east", "flushed", "ff"), Master("m:10912", "m:10911"), Master("")]
)
def test_an_order_comes_back(order: Command) -> None:
    assert command_of(command_bytes(order)) == order


@pytest.mark.parametrize(
    "news",
    [
        LongerSlave("10.0.0.2", 4000, 1001, 1000),
        PeerNews("10.0.0.2", 4000, "closed", why="reset"),
        LinkNews("m:10912", "transfer", stock=True),
    ],
)
def test_news_come_back(news: News) -> None:
    assert news_of(news_bytes(news)) == news


def test_fields_of_a_newer_build_are_passed_over_and_missing_ones_have_defaults() -> None:
    data = json.dumps({"order": "identity", "host": "h", "port": 1, "broker_id": 2, "colour": "red"}).encode()
    assert command_of(data) == Identity("h", 1, 2)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "Expecting value"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "no JSON"),
        (b'{"order": "dance"}', "unknown order"),
        (b'{"order": ["master"]}', "unknown order"),
        (b'{"order": "master"}', "Master without ha"),
        (b'{"order": "master", "ha": 1}', "Master.ha is 1"),
        (b'{"order": "identity", "host": "h", "port": true, "broker_id": 1}', "Identity.port is True"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_what_is_no_order_is_told(data: bytes, says: str) -> None:
    with pytest.raises(MessageError, match=says):
        command_of(data)


def test_an_order_that_does_not_fit_is_refused_where_it_is_made() -> None:
    with pytest.raises(MessageError, match="at most"):
        command_bytes(Master("m" * JSON_BYTES_MAX))
