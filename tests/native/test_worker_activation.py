"""A worker that ends when it finds no work, and the wishes of processes that have some: none is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from plane_kit import Kit, die_with_parent

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib
from tests.waiting import wait_until

ROLE = lib.RMQ_ROLES_MAX - 1
PUBLISHED, DONE, ENDS = range(3)
ROUNDS = 20_000


def as_worker_and_supervisor(kit: Kit) -> None:
    """Work until nothing is left, end, and start again when the word is set; a negative number published is the end."""
    block = kit.header.roles[ROLE]
    while True:
        while not block.activation_requested:
            lib.rmq_role_arm(kit.plane, lib.RMQ_ROLE_SUPERVISOR)
            if block.activation_requested:
                lib.rmq_role_disarm(kit.plane, lib.RMQ_ROLE_SUPERVISOR)
            else:
                lib.rmq_role_wait(kit.plane, lib.RMQ_ROLE_SUPERVISOR, 60_000)  # a lost bell is a lost wish
        block.activation_requested = 0
        while True:
            if block.counters[PUBLISHED] == ROUNDS + 1:
                return
            block.counters[DONE] = block.counters[PUBLISHED]
            lib.rmq_worker_deactivate(kit.plane, ROLE)
            if block.counters[PUBLISHED] == block.counters[DONE]:
                break
        block.counters[ENDS] += 1


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child; its pid."""
    pid = os.fork()
    if not pid:
        die_with_parent()
        try:
            work()
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def test_no_wish_is_lost_while_the_worker_ends(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    block = kit.header.roles[ROLE]
    child = forked(lambda: as_worker_and_supervisor(kit))
    for number in range(1, ROUNDS + 1):
        block.counters[PUBLISHED] = number
        lib.rmq_worker_activate(kit.plane, ROLE)
        if number % 50 == 0:
            wait_until(lambda: block.counters[DONE] == block.counters[PUBLISHED], f"wish {number} is met")
    assert block.counters[ENDS] > 0, "the worker has ended in between"
    block.counters[PUBLISHED] = ROUNDS + 1
    lib.rmq_worker_activate(kit.plane, ROLE)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("state", TenureState)
@pytest.mark.parametrize("flags", [0, lib.RMQ_ROLE_OF_MASTER, lib.RMQ_ROLE_OF_MASTER | lib.RMQ_ROLE_OPTIONAL])
def test_the_worker_of_a_master_is_started_on_a_master_alone(tmp_path: Path, flags: int, state: TenureState) -> None:
    """On a slave its process would submit requests that no worker takes."""
    kit = Kit(tmp_path)
    block = kit.header.roles[ROLE]
    block.flags, kit.marks.tenure = flags, Tenure(state, epoch=3).word
    lib.rmq_worker_activate(kit.plane, ROLE)
    assert block.activation_requested == (not flags or state is TenureState.MASTER)
