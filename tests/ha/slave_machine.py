"""The state machine of a slave's link."""

from ringmq.ha import slave_core, slave_events
from tests.state_machine import Machine

SLAVE = Machine(
    "A slave's link to its master",
    "`ha/slave_core.py`, one for the worker `ha` of a slave. [Replication](replication.md) tells what it is for.",
    slave_core.State,
    slave_events.EVENTS,
    slave_core.TRANSITIONS,
    slave_core.State.IDLE,
)
