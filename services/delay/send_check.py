"""The check of sends with a delay level."""

from __future__ import annotations

from ringmq.broker.requests.cold_send import ColdSend
from ringmq.remoting import properties


def refusal(send: ColdSend) -> str | None:
    """See SendCheck. The rules see every level of a single message that is a number."""
    level = send.pairs.get(properties.DELAY)
    if level is None or not _is_positive(level):
        return None
    remark = f"{properties.DELAY} = {level[:32]} is no delay level, or stands in a batch: only a single message"
    return f"{remark} can be delayed, by a number"


def _is_positive(text: str) -> bool:
    """True if a delay level delays. Text that is no number counts as positive, so that no malformed level passes."""
    try:
        return int(text) > 0
    except ValueError:
        return True
