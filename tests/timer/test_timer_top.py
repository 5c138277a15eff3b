"""`ringmq timer top`: numbers out of two scrapes, and the screen."""

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from ringmq.cli import top
from ringmq.cli.main import main
from ringmq.cli.metrics_text import parse
from ringmq.timer.cli.view import BoundRow, help_screen, screen, view_of

BEFORE = """
ringmq_timer_enqueued_total 100
ringmq_timer_delivered_total 50
"""
NOW = """
ringmq_ready{node_id="b",cluster="c"} 1
ringmq_timer_enqueued_total 300
ringmq_timer_delivered_total 70
ringmq_timer_rolled_total 2
ringmq_timer_skipped_total 3
ringmq_timer_unread_messages 4
ringmq_timer_behind_seconds 20
ringmq_timer_minute_messages 120
ringmq_timer_minute_lateness_seconds{quantile="0.5"} 0.001024
ringmq_timer_minute_lateness_seconds{quantile="0.99"} 2.097152
ringmq_timer_minute_lateness_seconds{quantile="1"} 2.097152
ringmq_timer_full_slots 1
ringmq_timer_fullest_slot_messages 5000000
ringmq_timer_fullest_slot_seconds 90
rocketmq_timer_dequeue_lag 1007
ringmq_timer_waiting_messages 1000
ringmq_timer_waiting_beyond_day 957
rocketmq_timer_message_snapshot{timer_bound_s="60"} 30
rocketmq_timer_message_snapshot{timer_bound_s="5"} 10
rocketmq_timing_messages{topic="T"} 400
rocketmq_timing_messages{topic="A"} 600
rocketmq_timing_messages{topic="Empty"} 0
"""


def test_numbers_are_those_of_the_metrics() -> None:
    view = view_of(parse(BEFORE, 10.0), parse(NOW, 12.0))
    assert (view.broker, view.waiting, view.recalled, view.unread, view.skipped) == ("b", 1000, 7, 4, 3)
    assert (view.enqueued_per_second, view.delivered_per_second, view.rolled_per_second) == (100, 10, 1)
    assert (view.minute_messages, view.minute_p50_ms, view.minute_p99_ms) == (120, 1.024, 2097.152)
    assert (view.full_slots, view.fullest_slot_messages, view.fullest_slot_in_ms) == (1, 5_000_000, 90_000)
    assert view.by_time == (BoundRow(5, 13), BoundRow(60, 30), BoundRow(None, 957)), "3 are overdue"
    assert [(row.topic, row.messages) for row in view.by_topic] == [("A", 600), ("T", 400)]


def drawn(content: object) -> str:
    console = Console(width=110, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(content)
    return captured.get()


def test_the_screen_has_all_of_it() -> None:
    text = drawn(screen(view_of(parse(BEFORE, 10.0), parse(NOW, 12.0)), "q ends"))
    for words in (
        "b of c", "waiting 1000 and 7 recalled", "behind 20.0 s", "last minute: 120 delivered, late p50 < 1.02 ms",
        "p99 < 2.1 s",
        "full slots 1", "fullest 5M messages in 90.0 s", "q ends", "up to 5.0 s", "later", "A ",
    ):  # fmt: skip
        assert words in text, text
    assert "Empty" not in text
    assert "recalled ones stay" in drawn(help_screen())


def test_a_broker_without_timers_shows_zeros() -> None:
    view = view_of(parse("", 0.0), parse("", 1.0))
    assert (view.waiting, view.by_time, view.by_topic) == (0, (BoundRow(None, 0),), ())
    assert "fullest 0 messages" in drawn(screen(view))


def test_one_look_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter([BEFORE, NOW])
    monkeypatch.setattr(top, "fetch", lambda address: next(pages))
    done = CliRunner().invoke(main, ["timer", "top", "--once", "-o", "json", "--interval", "0.2"])
    assert done.exit_code == 0, done.output
    value = json.loads(done.output)
    assert value["waiting"] == 1000 and value["by_time"][0] == {"up_to_seconds": 5, "messages": 13}
