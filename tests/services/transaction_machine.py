"""The state machine of a transaction."""

from ringmq.services.transactions import core
from tests.state_machine import Machine

TRANSACTION = Machine(
    "A transaction",
    "`services/transactions/core.py`, one for each half message. "
    "[Transactions](message-services.md#transactions) tells what it is for. Plain ends take the way of C from open to "
    "sent, and from there to ended or back to open (`native/src/services/transaction_ends.c`).",
    core.State,
    core.EVENTS,
    core.TRANSITIONS,
    core.State.OPEN,
)
