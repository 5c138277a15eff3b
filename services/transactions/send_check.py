"""The check of sends of half messages."""

from __future__ import annotations

from ringmq.broker.requests.cold_send import ColdSend
from ringmq.ipc.admission import RULE_KEY_MAX
from ringmq.remoting import names, properties


def refusal(send: ColdSend) -> str | None:
    """See SendCheck. No rule covers a half message that comes here, unless its topic was missing."""
    if send.pairs.get(properties.TRAN_MSG, "").lower() != "true":
        return None
    key_length = len(send.pairs.get(properties.UNIQ_KEY, "").encode("utf-8", "replace"))
    reason = f"the broker has no topic {names.HALF_TOPIC}"
    if send.is_batch:
        reason = "a half message cannot be in a batch"
    elif key_length > RULE_KEY_MAX:
        reason = f"{properties.UNIQ_KEY} of a half message: {key_length} bytes, limit {RULE_KEY_MAX}"
    return f"{properties.TRAN_MSG} = true: {reason}"
