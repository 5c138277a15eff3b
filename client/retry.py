"""The retries of a failed send. No IO: the clock is an argument.

Rules of RocketMQ's producer (`DefaultMQProducer.retryResponseCodes`, `DefaultMQProducerImpl.sendDefaultImpl`): up to
two retries inside one time budget, on connection faults, time-outs and the codes below. Any other code is final. The
next attempt prefers another broker than the one that failed. Here an attempt that never left (no connection, or no
broker registered) is not counted: the producer waits for a broker's restart as long as the time budget lasts.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ringmq.client.arguments import INT_MAX, check_flags, check_kinds, check_numbers
from ringmq.client.errors import (
    BrokerError,
    ClientClosedError,
    ConnectError,
    NotANameServerError,
    NotStoreOkError,
    RequestTimeoutError,
    RingmqError,
    RouteError,
    TlsError,
)

RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})
SEND_ATTEMPTS_MAX = 16


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts of a send, and the time for all of them together."""

    attempts: int = 3
    budget_ms: int = 3000
    retry_codes: frozenset[int] = RETRY_CODES
    another_broker_when_not_store_ok: bool = False
    """Send a message again, to another broker, if it was stored without the requested safety (statuses 10, 11, 12).

    Stock's `retryAnotherBrokerWhenNotStoreOK`: the message is then stored twice.
    """
    avoid_slow_brokers: bool = False
    """Avoid brokers for a while that answered late or not at all. Stock's `sendLatencyFaultEnable`."""

    def __post_init__(self) -> None:
        check_numbers(1, SEND_ATTEMPTS_MAX, attempts=self.attempts)
        check_numbers(1, INT_MAX, budget_ms=self.budget_ms)
        check_kinds(Collection, retry_codes=self.retry_codes)
        for code in self.retry_codes:
            check_numbers(-INT_MAX, INT_MAX, retry_codes=code)
        check_flags(
            another_broker_when_not_store_ok=self.another_broker_when_not_store_ok,
            avoid_slow_brokers=self.avoid_slow_brokers,
        )

    def budget_end(self, began: float) -> float:
        """Return the end of the time for work that began at `began` (seconds of the same clock)."""
        return began + self.budget_ms / 1000

    def may_retry(self, error: RingmqError, attempts_done: int, elapsed_ms: float) -> bool:
        """True if another attempt follows the failure `error`. `attempts_done` counts the sent attempts."""
        if elapsed_ms >= self.budget_ms or isinstance(error, TlsError):
            return False
        if (isinstance(error, ConnectError) and not error.sent) or (isinstance(error, RouteError) and error.may_pass):
            return True
        if attempts_done >= self.attempts:
            return False
        if isinstance(error, BrokerError):
            return error.code in self.retry_codes
        return isinstance(error, ConnectError | RequestTimeoutError | NotStoreOkError)


def never_left(error: RingmqError) -> bool:
    """True if an attempt with this failure certainly reached no broker."""
    if isinstance(error, ConnectError):
        return not error.sent
    return isinstance(error, RouteError | NotANameServerError | ClientClosedError)


def backoff_ms(failures: int, jitter: float, first_ms: int = 20, max_ms: int = 3000) -> float:
    """Return the pause after `failures` failed attempts: none after a success, then doubling, bounded.

    `jitter` in [0, 1) takes up to half off.
    """
    if failures <= 0:
        return 0.0
    full = min(max_ms, first_ms << min(failures - 1, 16))
    return full * (1.0 - jitter / 2)
