"""10,000 open messages of POP go to a version that cannot read what is kept of them, and come from one."""

import sys

import pytest

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.pop_bodies import LOOK, PopDrain
from tests.commands import run_ringmq
from tests.raw_client import RawClient
from tests.upgrade import popping_group
from tests.upgrade.popping_group import OPEN, TAKEN
from tests.upgrade.version_kit import Member
from tests.waiting import wait_until

pytestmark = [pytest.mark.upgrade, pytest.mark.timeout(1200)]  # the first test that needs a version builds it
NEW = sys.executable
OLDER = {"first_pop_python": popping_group.consume_by_pops, "before_pop_python": popping_group.consume_by_pulls}
"""A fixture of an older version, and how its consumers get messages."""


def open_messages(address: str) -> int:
    """As the broker counts them."""
    with RawClient(address) as client:
        answer = client.ask(RequestCode.POP_DRAIN, {"choice": LOOK})
    assert answer.code == 0, answer.remark
    return PopDrain.decode(answer.body).messages


@pytest.mark.parametrize("how", ["drain", "stop"])
@pytest.mark.parametrize("older", OLDER)
def test_open_messages_come_again_in_an_older_version(
    member: Member, older: str, how: str, request: pytest.FixtureRequest
) -> None:
    """Half of them have records in the log, of an earlier stop. The older version refuses the store with these."""
    python = request.getfixturevalue(older)
    broker = member.run(NEW)
    group = popping_group.make(broker.address)
    group.take(broker.address, 0, TAKEN // 2)
    with pytest.raises(RuntimeError, match="status 65"):
        member.run(python)
    broker = member.run(NEW, ringmqPopExportAtStop=how == "drain")
    group.hold_10_000(broker.address, TAKEN // 2)
    wait_until(lambda: open_messages(broker.address) == OPEN, "a copy that is on disk ends its message")
    if how == "drain":
        done = run_ringmq("pop", "drain", "--now", "--namesrv", broker.namesrv)
        assert done.returncode == 0, done.stderr
    found, expected = OLDER[older](member.run(python).address), group.expected()
    print(f"{older}, {how}: {len(group.held)} open, {len(group.held - found.keys())} lost, "
          f"{found.total()} given, of them {(found - expected).total()} beyond the documentation")  # fmt: skip
    assert group.held.keys() <= found.keys(), "none is lost"
    assert found == expected, "nothing comes again that was done below the first open message"


def test_open_messages_of_the_first_pop_come_again_in_this_version(member: Member, first_pop_python: str) -> None:
    broker = member.run(first_pop_python)
    group = popping_group.make(broker.address)
    group.hold_10_000(broker.address)
    found, expected = popping_group.consume_by_pops(member.run(NEW).address), group.expected()
    print(f"forward: {len(group.held)} open, {len(group.held.keys() - found.keys())} lost, {found.total()} given, "
          f"of them {(found - expected).total()} beyond the documentation")  # fmt: skip
    assert group.held.keys() <= found.keys(), "none is lost"
    assert found == expected, "nothing comes again that was done below the first open message"
