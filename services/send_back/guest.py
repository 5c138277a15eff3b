"""Messages that consumers send back, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Command, Guest

GUEST = Guest(
    "send-back",
    metric_table="ringmq.services.send_back.metric_table:METRICS",
    metrics="ringmq.services.send_back.metrics:families",
    questions="ringmq.services.send_back.questions:QUESTIONS",
    commands=(
        Command("retry", "ringmq.services.send_back.cli.commands:retry", group="group"),
        Command("dlq", "ringmq.services.send_back.cli.commands:dlq", group="group"),
    ),
    control_answers="ringmq.services.send_back.on_slave:answers",
)
