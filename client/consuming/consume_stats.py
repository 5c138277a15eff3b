"""Rates of a consumer's pulls and handlers, by topic, for request 307. No IO. Times in seconds of one clock."""

from collections import defaultdict, deque
from dataclasses import dataclass

from ringmq.remoting.consumer_bodies import ConsumeStatus

MINUTES_KEPT = 61  # the last hour and the minute that runs


@dataclass(slots=True)
class _Minute:
    number: int
    handled: int = 0
    failed: int = 0
    handled_s: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pulled_s: float = 0.0


class ConsumeStats:
    """Counts by topic and minute."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._minutes: dict[str, deque[_Minute]] = defaultdict(lambda: deque(maxlen=MINUTES_KEPT))

    def note_handled(self, topic: str, now: float, took_s: float, *, failed: bool) -> None:
        """Count the end of a handler."""
        minute = self._minute(topic, now)
        minute.handled_s += took_s
        minute.failed += failed
        minute.handled += not failed

    def note_pulled(self, topic: str, now: float, took_s: float, messages: int) -> None:
        """Count a pull and its messages."""
        minute = self._minute(topic, now)
        minute.pulls += 1
        minute.pulled += messages
        minute.pulled_s += took_s

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """Return rates of the last whole minute, and failures of the last hour.

        In the first minute the rates are those since the start.
        """
        minutes = self._minutes.get(topic)
        if not minutes:
            return ConsumeStatus()
        number = int(now // 60)
        before = [minute for minute in minutes if minute.number == number - 1]
        if before or now - self._started >= 120:
            shown, span_s = (before[0] if before else _Minute(number - 1)), 60.0
        else:
            shown, span_s = minutes[-1], max(1.0, now - self._started)
        handled = shown.handled + shown.failed
        return ConsumeStatus(
            pull_rt_ms=1000 * shown.pulled_s / shown.pulls if shown.pulls else 0.0,
            pull_tps=shown.pulled / span_s,
            consume_rt_ms=1000 * shown.handled_s / handled if handled else 0.0,
            consume_ok_tps=shown.handled / span_s,
            consume_failed_tps=shown.failed / span_s,
            failed_messages=sum(minute.failed for minute in minutes if minute.number > number - 60),
        )

    def _minute(self, topic: str, now: float) -> _Minute:
        minutes, number = self._minutes[topic], int(now // 60)
        if not minutes or minutes[-1].number != number:
            minutes.append(_Minute(number))
        return minutes[-1]
