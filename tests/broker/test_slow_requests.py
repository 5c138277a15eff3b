"""What control says of sends and of requests of its own that took long."""

from pathlib import Path

from ringmq.broker.requests import slow_requests
from ringmq.broker.requests.slow_requests import LINES_PER_SECOND, OWN_MAX, SlowControlRequest, SlowRequests
from ringmq.remoting.codes import RequestCode
from tests.broker.exporter_kit import kit

ONE = SlowControlRequest(1_700_000_000_123, RequestCode.QUERY_MESSAGE, "127.0.0.1:77", 96, 1_532_100)


def test_what_is_too_much_for_a_second_is_counted_and_told_later() -> None:
    slow = SlowRequests()
    assert len(list(slow.due_lines([ONE] * (LINES_PER_SECOND + 5), 3_000))) == LINES_PER_SECOND
    assert list(slow.due_lines([ONE], 3_999)) == []
    assert slow.dropped == 6
    (line,) = slow.due_lines([ONE], 4_000)
    assert line == f"{ONE.line()}; 6 more slow requests have no line"
    assert list(slow.due_lines([ONE], 4_500)) == [ONE.line()]


def test_a_line_names_code_time_and_client() -> None:
    text = ONE.line()
    assert text.startswith("slow request: 1532.1 ms, code 12 (QUERY_MESSAGE), 96 bytes from 127.0.0.1:77, received ")
    assert text.endswith(".123")
    assert "code 9999, " in SlowControlRequest(0, 9999, "a", 1, 1).line()


def test_controls_own_are_told_once_and_bounded() -> None:
    slow = SlowRequests()
    for _ in range(OWN_MAX + 3):
        slow.add(ONE)
    assert (len(slow.own()), slow.dropped, slow.own()) == (OWN_MAX, 3, [])


def test_readers_that_are_faster_do_not_hold_control(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        ring = made.plane.header.ports.port[0].slow
        ring.head = 3
        taken = 0
        for _ in slow_requests.take(made.plane):
            ring.head += 1
            taken += 1
            assert taken < 64, "control never comes to an end"
        assert (taken, ring.tail, ring.head) == (3, 3, 6)
