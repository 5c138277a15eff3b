"""The state machine of an entry of POP."""

from ringmq.pop import entry_states
from tests.state_machine import Machine

ENTRY = Machine(
    "An entry of POP",
    "`pop/entry_states.py`, one for each pop of a queue: up to 64 messages. The C core does the same "
    "(`native/src/pop/pop_entries.c`, `native/src/pop/pop_revivals.c`), and a test compares both. An event names some "
    "of the messages. The state says what may come next for those that are not done.",
    entry_states.State,
    entry_states.EVENTS,
    entry_states.TRANSITIONS,
    entry_states.State.FREE,
)
