"""The states of a broker's role (`tenure_core`), and the step that each of them waits for."""

from __future__ import annotations

from enum import Enum

from ringmq.ha.tenure_events import Step


class State(Enum):
    """The role, and the steps of its changes."""

    BEGINNING = "control has not begun"
    ASKS = "a start as master asks the peers for a higher epoch"
    HOLDS = "a start as master waits for a peer or an operator"
    SLAVE = "it follows a master, or looks for one"
    NOTES = "a slave syncs whom it follows, or what it has promised"
    LOOKS = "a promotion asks the peers for their logs and epochs"
    PREPARES = "a promotion asks the peers for promises"
    TAKE_STAND = "to master: workers end their turns"
    TAKE_JOURNAL = "to master: write opens the journal"
    TAKE_SERVE = "to master: services start"
    TAKE_FILE = "to master: the file is synced"
    UNDO_FILE = "a promotion has failed: the old record is written again"
    UNDO_JOURNAL = "a promotion has failed: ha opens the journal again"
    MASTER = "it takes requests"
    YIELD_STAND = "to slave: workers end their turns"
    YIELD_FILE = "to slave: the file is synced"
    YIELD_CLOSE = "to slave: services end"
    YIELD_JOURNAL = "to slave: ha opens the journal"
    ENDED = "the broker stops"


STEPS = {
    State.TAKE_STAND: Step.STAND,
    State.TAKE_JOURNAL: Step.WRITE,
    State.TAKE_SERVE: Step.SERVE,
    State.UNDO_JOURNAL: Step.RECEIVE,
    State.YIELD_STAND: Step.STAND,
    State.YIELD_CLOSE: Step.CLOSE,
    State.YIELD_JOURNAL: Step.RECEIVE,
}
TAKING = (State.TAKE_STAND, State.TAKE_JOURNAL, State.TAKE_SERVE)
"""The steps of a promotion before its file."""
YIELDING = (State.YIELD_STAND, State.YIELD_CLOSE, State.YIELD_JOURNAL)
"""The steps of a demotion but for its file."""
