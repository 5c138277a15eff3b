"""The state machines of POP's memory: of an entry, and of a batch of an orderly group."""

from ringmq.pop import entry_states, order_states
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

ORDER = Machine(
    "A batch of an orderly group",
    "`pop/order_states.py`, one for each window: up to 32 messages. The C core does the same "
    "(`native/src/pop/pop_orders.c`, `native/src/pop/pop_order_batches.c`), and a test compares both. No message is "
    "lost with a batch: the next pop begins at the next offset of the window.",
    order_states.OrderState,
    order_states.ORDER_EVENTS,
    order_states.ORDER_TRANSITIONS,
    order_states.OrderState.NONE,
)
