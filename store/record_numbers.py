"""Numbers that a client wrote as text into the properties or the body of a record. None of them is trusted.

Python's `int` accepts underscores, blanks and digits of other scripts, and raises ValueError above 4300 digits.
"""

import re
from collections.abc import Mapping

from ringmq.store import layout

INTEGER_MAX = 0x7FFFFFFF
LONG_MAX = 0x7FFFFFFFFFFFFFFF
_INTEGER = re.compile("([+-]?)0*([0-9]{1,10})")
_DIGITS = re.compile("0*([0-9]{1,19})")


def small_number(text: str) -> int:
    """Return Java's Integer.parseInt, 0 for any other text. The same rule as `native/src/base/number_text.h`."""
    match = _INTEGER.fullmatch(text)
    number = int(match[2]) if match else 0
    if number > INTEGER_MAX:
        return 0
    return -number if match and match[1] == "-" else number


def decimal(text: str) -> int | None:
    """Return ASCII digits as a number of at most 63 bits, None for any other text."""
    match = _DIGITS.fullmatch(text)
    number = int(match[1]) if match else -1
    return number if 0 <= number <= LONG_MAX else None


def message_count(properties: Mapping[str, str], sys_flag: int, *, is_batch_queue: bool) -> int:
    """Return the number of messages in a record, by the rule of `rmq_message_count` in dispatch."""
    if not sys_flag & layout.INNER_BATCH and not is_batch_queue:
        return 1
    return max(1, small_number(properties.get("INNER_NUM", "1")))
