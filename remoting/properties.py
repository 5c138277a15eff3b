"""The properties string of a message, `name U+0001 value U+0002` repeated (spec remoting 7.2), and the known names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
MAX_PROPERTIES_BYTES: Final = 32767
"""The longest properties string: its length field is an int16."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"
MSG_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
POP_CK: Final = "POP_CK"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"

TIMES_ASKED: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""In the order in which a broker looks for them."""
TIMER_PROPERTIES: Final = frozenset(TIMES_ASKED)
"""The properties that make a message a timer message."""


def encode_properties(properties: Mapping[str, str]) -> str:
    """Return the properties string, in the mapping's order, each pair closed by U+0002.

    Raises TypeError for other values.
    """
    if not properties:
        return ""
    try:
        return PROPERTY_SEPARATOR.join(map(NAME_SEPARATOR.join, properties.items())) + PROPERTY_SEPARATOR
    except TypeError:
        wrong = next(item for item in properties.items() if not (isinstance(item[0], str) and isinstance(item[1], str)))
        raise TypeError(f"property {wrong[0]!r} must be text, not {wrong[1]!r}") from None


def decode_properties(text: str) -> dict[str, str]:
    """Return the pairs that stock's reader finds.

    Parts without a name, a value or U+0001 are dropped. Of equal names the last value counts. The last U+0002 may be
    missing.
    """
    properties: dict[str, str] = {}
    for part in text.split(PROPERTY_SEPARATOR):
        name, separator, value = part.partition(NAME_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    return properties


def check_property(name: str, value: str) -> None:
    """Raise `ValueError` for a pair that the string form cannot carry."""
    if not name or not value:
        raise ValueError(f"property {name!r} = {value!r}: name and value must not be empty")
    for text in (name, value):
        if NAME_SEPARATOR in text or PROPERTY_SEPARATOR in text:
            raise ValueError(f"property {name!r}: name and value must not hold U+0001 or U+0002")
