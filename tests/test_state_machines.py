"""Tables of links, transactions, timers and images answer every event in every state. The page shows them."""

import pytest

from tests.state_machine import Machine
from tests.state_machines import MACHINES, PAGE, page


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)
def test_every_pair_of_a_state_and_an_event_has_one_cell(machine: Machine) -> None:
    machine.check()


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text() == page(), "write it again: python -m tests.state_machines"
