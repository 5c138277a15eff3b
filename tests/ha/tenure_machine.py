"""The state machine of a broker's role."""

from ringmq.ha import tenure_core, tenure_events, tenure_states
from tests.state_machine import Machine

TENURE = Machine(
    "The role of a broker",
    "`ha/tenure_core.py`, one for each broker. The word of the plane is SLAVE in slave, notes, looks and prepares, "
    "MASTER in master, YIELDING in the states of its name, and TAKING in the others.",
    tenure_states.State,
    tenure_events.EVENTS,
    tenure_core.TRANSITIONS,
    tenure_states.State.BEGINNING,
)
