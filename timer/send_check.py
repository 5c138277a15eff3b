"""The check of sends with a time."""

from __future__ import annotations

from ringmq.broker.requests.cold_send import ColdSend
from ringmq.ipc.admission import RuleKind
from ringmq.ipc.admission_twin import RESERVED_PAIRS_MAX, is_reserved
from ringmq.remoting import names, properties


def refusal(send: ColdSend) -> str | None:
    """See SendCheck. No rule covers a time if there is no timer topic, or if the rules do not see all pairs.

    If the rules see the pairs and store the message as an ordinary one, its time has passed.
    """
    name = next((name for name in properties.TIMES_ASKED if name in send.pairs), None)
    if name is None:
        return None
    if not any(rule.kind is RuleKind.TIMER for rule in send.rules()):
        return f"{name} = {send.pairs[name][:32]}: the broker has no topic {names.WHEEL_TIMER_TOPIC}"
    reserved = sum(is_reserved(pair.partition(b"\x01")[0]) for pair in send.properties.split(b"\x02"))
    if reserved <= RESERVED_PAIRS_MAX:
        return ""
    return f"{name} is one of {reserved} properties for brokers, the limit is {RESERVED_PAIRS_MAX}"
