"""Delay levels, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Admission, CopiedFile, Guest, Place

GUEST = Guest(
    "delay",
    metric_table="ringmq.services.delay.metric_table:METRICS",
    metrics="ringmq.services.delay.metrics:families",
    runtime_info="ringmq.services.delay.runtime_info:rows",
    send_check="ringmq.services.delay.send_check:refusal",
    admission=(Admission(Place.DELAYS, "ringmq.services.delay.admission:delay_rules"),),
    copied_files=(CopiedFile("delayOffset.json", 45, "offsetTable", replaces="ringmqDelayOffset.json"),),
)
