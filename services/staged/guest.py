"""Staged writes, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Guest

GUEST = Guest(
    "staged",
    control_answers="ringmq.services.staged.on_slave:answers",
    on_log_cut="ringmq.services.staged.staged_table:forget_behind",
)
