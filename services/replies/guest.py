"""Replies of consumers, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Guest

GUEST = Guest(
    "replies",
    questions="ringmq.services.replies.questions:QUESTIONS",
    control_answers="ringmq.services.replies.on_slave:answers",
)
