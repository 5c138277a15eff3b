"""The state machine of the image of the workers."""

from ringmq.ipc import image_core
from tests.state_machine import Machine

IMAGE = Machine(
    "The image of the workers",
    "`ipc/image_core.py`, one in the main process. "
    "[How a worker comes to life](../ARCHITECTURE.md#how-a-worker-comes-to-life) tells what it is for.",
    image_core.State,
    image_core.EVENTS,
    image_core.TRANSITIONS,
    image_core.State.FIRST,
)
