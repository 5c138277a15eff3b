"""The state machines of timers."""

from ringmq.timer import core
from tests.state_machine import Machine

INTRO = "`timer/core.py`, {}. [Timers](timers.md) tells what it is for."
TOPIC = Machine(
    "Timers: the way into the wheel",
    INTRO.format("one for the worker `timer`"),
    core.TopicState,
    (core.Tick, core.Enqueued),
    core.TOPIC,
    core.TopicState.RESTING,
)
SLOT = Machine(
    "Timers: a slot",
    INTRO.format("one for each slot. A Tick is for the open slot, which has later ones read as well"),
    core.SlotState,
    (core.Tick, core.Walked),
    core.SLOT,
    core.SlotState.OUTSIDE,
)
COPIES = Machine(
    "Timers: copies in flight",
    INTRO.format("one for the worker `timer`"),
    core.CopiesState,
    (core.Tick, core.Published, core.Stored, core.Refused),
    core.COPIES,
    core.CopiesState.NONE,
)
