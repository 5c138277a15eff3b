"""The page docs/state-machines.md, made from the tables: `python -m tests.state_machines` writes it."""

from pathlib import Path

from tests.ha.slave_machine import SLAVE
from tests.ha.tenure_machine import TENURE
from tests.ipc.image_machine import IMAGE
from tests.pop.entry_machine import ENTRY, ORDER
from tests.pop.snapshot_machine import SNAPSHOT
from tests.services.transaction_machine import TRANSACTION
from tests.state_machine import actions, drawing, others, word, wrapped
from tests.timer.machines import COPIES, SLOT, TOPIC

PAGE = Path(__file__).parent.parent / "docs" / "state-machines.md"
MACHINES = [SLAVE, TENURE, TRANSACTION, TOPIC, SLOT, COPIES, IMAGE, ENTRY, ORDER, SNAPSHOT]
HEAD = """# State machines

Here are the state machines whose transitions are data in the sources. `python -m tests.state_machines` makes this page
from their tables. Tests run each pair of a state and an event, and each arrow.

An event without an action in a state is *ignored*, or *impossible*: then it raises `ImpossibleEventError`. The list
behind each table gives the reasons.

The supervisor (`ipc/supervisor_core.py`) has two actions for each pair, one of them for a stop. Its docstring draws it.
"""


def page() -> str:
    """The text of docs/state-machines.md."""
    lines = HEAD.splitlines()
    for machine in MACHINES:
        lines += ["", f"## {machine.title}", "", *wrapped(machine.intro), "", *drawing(machine), ""]
        lines += ["| State | Meaning |", "|---|---|"]
        lines += [f"| {word(state.name)} | {state.value} |" for state in machine.states]
        lines += ["", *actions(machine), "", *others(machine)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
