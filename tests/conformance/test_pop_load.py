"""Groups under load, the same program against both brokers, while an operator changes their mode or their offsets."""

from collections import Counter
from typing import Any

import pytest

from tests.conformance.cases import Case, case, judged
from tests.conformance.pop_cases import LOOK_S

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]
MODES = ["POP", "PULL", "POP", "PULL", "POP"]
LOAD: dict[str, Any] = {"queues": 4, "members": 2, "each": 100, "pauseMillis": 10, "waitSeconds": 90}


def times_of(seen: Seen) -> Counter[str]:
    """How often each message came."""
    return Counter(body for body, _ in seen["calls"])


@judged(case("popModes", "PopModes", seconds=35, modes=MODES, invisibleMillis=5000, lookSeconds=5 + LOOK_S, **LOAD))
def test_a_group_turns_from_mode_to_mode_under_load(kind: str, seen: Seen) -> None:
    sent, times = {body for body, *_ in seen["sent"]}, times_of(seen)
    again = Counter(count - 1 for count in times.values() if count > 1)
    print(f"{kind}: {len(sent)} sent, {len(sent - times.keys())} lost, {sum(again.values())} repeated, "
          f"by how often {dict(again)}; calls by mode {dict(Counter(mode for _, mode in seen['calls']))}; turns after "
          f"{[turn['millis'] for turn in seen['turns']]} ms")  # fmt: skip
    assert [turn["mode"] for turn in seen["turns"]] == MODES
    assert all(turn["millis"] >= 0 and turn["isAtWork"] for turn in seen["turns"]), "members consume in each mode"
    assert sent and times.keys() == sent, "nothing is lost"


@judged(
    case("popResetsUnderLoad", "PopResetsUnderLoad", seconds=20, resets=[5, 0, 20], invisibleMillis=300_000,
         lookSeconds=2, **LOAD)
)  # fmt: skip
def test_an_operator_sets_offsets_back_under_load(kind: str, case: Case, seen: Seen) -> None:
    queue_of = {body: queue for body, queue, _ in seen["sent"]}
    bodies, times = [body for body, _ in seen["calls"]], times_of(seen)
    print(f"{kind}: {len(queue_of)} sent, {len(queue_of.keys() - times.keys())} lost, {len(bodies) - len(times)} calls "
          f"again, resets to {case.args['resets']} after {seen['before']} calls")  # fmt: skip
    assert queue_of and times.keys() == queue_of.keys(), "nothing is lost"
    for offset, before in zip(case.args["resets"], seen["before"], strict=True):
        behind = {body for body, queue, place in seen["sent"] if queue == 0 and place >= offset}
        given = behind & set(bodies[:before])
        assert given, "there is something to give again"
        assert given <= set(bodies[before:]), f"all behind {offset} comes again"
    assert {times[body] for body, queue in queue_of.items() if queue} == {1}, "other queues go on"
