"""When a failed send is tried again, and where. No IO: the clock is an argument.

Rules of RocketMQ's producer (`DefaultMQProducer.retryResponseCodes`, `DefaultMQProducerImpl.sendDefaultImpl`): up to
two retries inside one time budget, on connection faults, time-outs and the codes below; any other code is final. The
next attempt prefers another broker than the one that failed. Here an attempt that never left (no connection,
or no broker registered) does not use up one of them: a broker's restart is waited for as long as the time budget lasts.
"""

from dataclasses import dataclass

from ringmq.client.errors import (
    BrokerError,
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
    """How often a send is tried and how long all attempts together may take."""

    attempts: int = 3
    budget_ms: int = 3000
    retry_codes: frozenset[int] = RETRY_CODES
    another_broker_when_not_store_ok: bool = False
    """Send again, to another broker, what was stored without the safety asked for (statuses 10, 11, 12). Stock's
    `retryAnotherBrokerWhenNotStoreOK`: the message is then stored twice."""
    avoid_slow_brokers: bool = False
    """Leave brokers alone for a while that answered late or not at all. Stock's `sendLatencyFaultEnable`."""

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= SEND_ATTEMPTS_MAX:
            raise ValueError(f"attempts must be 1 to {SEND_ATTEMPTS_MAX}, not {self.attempts}")
        if self.budget_ms < 1:
            raise ValueError(f"budget_ms must be positive, not {self.budget_ms}")

    def budget_end(self, began: float) -> float:
        """When the time of what began at `began` is over (seconds, of the same clock)."""
        return began + self.budget_ms / 1000

    def may_retry(self, error: RingmqError, attempts_done: int, elapsed_ms: float) -> bool:
        """Whether one more attempt follows the failure `error`; `attempts_done` counts those that were sent."""
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
    """Whether an attempt that ended so reached no broker for certain."""
    if isinstance(error, ConnectError):
        return not error.sent
    return isinstance(error, RouteError | NotANameServerError)


def backoff_ms(failures: int, jitter: float, first_ms: int = 20, max_ms: int = 3000) -> float:
    """Pause before the attempt that follows `failures` failed ones: none after a success, then doubling, bounded.

    `jitter` in [0, 1) takes up to half off.
    """
    if failures <= 0:
        return 0.0
    full = min(max_ms, first_ms << min(failures - 1, 16))
    return full * (1.0 - jitter / 2)
