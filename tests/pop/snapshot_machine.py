"""The state machine of snapshots of POP's memory."""

from ringmq.pop import snapshot_core
from tests.state_machine import Machine

SNAPSHOT = Machine(
    "A snapshot of POP's memory",
    "`pop/snapshot_core.py`, one in the worker `pop`. [What is kept](pop.md#what-is-kept) tells what it is for.",
    snapshot_core.State,
    snapshot_core.EVENTS,
    snapshot_core.TRANSITIONS,
    snapshot_core.State.RESTS,
)
