"""Transactions, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Admission, Command, Guest, Place

GUEST = Guest(
    "transactions",
    metric_table="ringmq.services.transactions.metric_table:METRICS",
    metrics="ringmq.services.transactions.metrics:families",
    questions="ringmq.services.transactions.questions:QUESTIONS",
    send_check="ringmq.services.transactions.send_check:refusal",
    commands=(
        Command(
            "transaction",
            "ringmq.services.transactions.cli.commands:transaction",
            help="List open transactions: age, checks, producer group.",
            after="group",
        ),
    ),
    admission=(
        Admission(Place.OTHER_HALVES, "ringmq.services.transactions.admission:other_halves"),
        Admission(Place.HALVES, "ringmq.services.transactions.admission:half_rules"),
    ),
    control_answers="ringmq.services.transactions.on_slave:answers",
)
