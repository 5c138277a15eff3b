"""The family of messages that were sent back after retention had deleted them."""

from __future__ import annotations

from ringmq.broker.exporter.sources import Add, Sources
from ringmq.native import lib
from ringmq.services.send_back.gone_messages import GONE_COUNTER


def families(sources: Sources) -> Add:
    """Those of any broker."""
    words = sources.plane.role(lib.RMQ_ROLE_SERVICES).counters
    return lambda page, now_ms: page.add("ringmq_send_backs_gone_total", int(words[GONE_COUNTER]))
