"""Brokers to avoid for a while because they answered late, or not at all. No IO: the clock is an argument.

Rules of RocketMQ's `MQFaultStrategy` (`sendLatencyFaultEnable`): the later an answer, the longer the pause. A failure
counts as ten seconds. If all brokers are to be avoided, the choice is free again.
"""

from bisect import bisect_right

from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, RingmqError
from ringmq.client.retry import RETRY_CODES

_LATENCY_FROM_MS = (50, 100, 550, 1800, 3000, 5000, 15_000)
_PAUSE_MS = (0, 0, 0, 2000, 5000, 6000, 10_000, 30_000)  # the first is for answers within 50 ms
FAILURE_LATENCY_MS = 10_000.0


class BrokerFaults:
    """The latencies of each broker, times in seconds of a monotonic clock."""

    __slots__ = ("_alone_until_s",)

    def __init__(self) -> None:
        self._alone_until_s: dict[str, float] = {}

    def note(self, broker_name: str, latency_ms: float, now_s: float) -> None:
        """Record an answer after `latency_ms`, `FAILURE_LATENCY_MS` for none."""
        pause_ms = _PAUSE_MS[bisect_right(_LATENCY_FROM_MS, latency_ms)]
        if pause_ms:
            self._alone_until_s[broker_name] = now_s + pause_ms / 1000
        else:
            self._alone_until_s.pop(broker_name, None)

    def note_attempt(self, broker_name: str, since_s: float, now_s: float, error: RingmqError | None) -> None:
        """Record the end of an attempt begun at `since_s`.

        A refusal for another reason than load counts as an answer.
        """
        refused = isinstance(error, BrokerError) and error.code in RETRY_CODES
        failed = refused or isinstance(error, ConnectError | RequestTimeoutError)
        self.note(broker_name, FAILURE_LATENCY_MS if failed else (now_s - since_s) * 1000, now_s)

    def avoided(self, now_s: float) -> frozenset[str]:
        """Return the brokers to avoid now."""
        return frozenset([name for name, until_s in self._alone_until_s.items() if until_s > now_s])
