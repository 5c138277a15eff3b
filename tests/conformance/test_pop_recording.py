"""The recorded pops of a stock broker, played again: nothing may differ but times.

Against RingMQ, `DIFFERS` has what it does otherwise by design, with its own answer.
"""

from collections.abc import Callable, Mapping

import pytest

from tests.conformance.pop_recording import BROKER, CLUSTER, Answer, script
from tests.conformance.pop_replay import Replay
from tests.conformance.servers import SMALL_FILES, Server

pytestmark = [pytest.mark.usefixtures("pops"), pytest.mark.timeout(400)]
SETTINGS = {
    **SMALL_FILES, "brokerName": BROKER, "brokerClusterName": CLUSTER, "enablePropertyFilter": True,
    "defaultTopicQueueNums": 4,
}  # fmt: skip
COMPARED_MIN = 213

DIFFERS: Mapping[tuple[str, str], tuple[object, str]] = {
    ("setup", "remark"): ("", "stock's answers about topics have a text that says nothing"),
    ("offset-after-pop", "offsets"): ((0, 0, 0, 0), "an offset stays at the first open message"),
    ("buffer-offset-after-stay-time", "offsets"): ((12,), "an offset stays at the first open message"),
}
"""By scene and what differs: RingMQ's own answer, and the reason."""


def test_recorded_pops_are_answered_as_they_were(kind: str, started: Callable[..., Server]) -> None:
    server = started(kind, "recorded-pops", settings=SETTINGS)
    steps = script()
    replay = Replay(server.broker, [step for step in steps if isinstance(step, Answer)])
    try:
        replay.wake()
        replay.run(steps)
    finally:
        replay.close()
    by_design = DIFFERS if kind == "ringmq" else {}
    wrong = [
        one for one in replay.differences
        if (one.scenario, one.what) not in by_design or by_design[one.scenario, one.what][0] != one.seen
    ]  # fmt: skip
    print(f"{kind}: {replay.compared} answers compared, {len(replay.differences)} differences")
    assert not wrong, "\n".join(
        f"{one.scenario}: {one.what}: {one.recorded} was recorded, not {one.seen}" for one in wrong
    )
    assert replay.compared >= COMPARED_MIN
    seen = {(one.scenario, one.what) for one in replay.differences}
    assert seen == by_design.keys(), "each difference by design is still there"
