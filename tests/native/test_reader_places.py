"""The last places of a reader's table of connections go to clients that speak."""

import time
from contextlib import ExitStack

import pytest
from reader_kit import Client, MakeKit, ReaderKit, connected, request, send_frame
from waiting import wait_until

from ringmq.native import lib

PLACES, FREE_PLACES = 64, 4  # of which the last 1/16
PACE_S = 0.01


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    return make_kit("write", "read", connections_max=PLACES, host_connections_max=PLACES)


def connections(kit: ReaderKit) -> int:
    return kit.counter(lib.RMQ_READ_CONNECTIONS)


def fill(kit: ReaderKit, stack: ExitStack, others: int = 0) -> list[Client]:
    """Connections that say nothing take all places but the last."""
    silent = [stack.enter_context(connected(kit)) for _ in range(PLACES - FREE_PLACES - others)]
    wait_until(lambda: connections(kit) == PLACES - FREE_PLACES, "all are accepted")
    return silent


def test_a_flood_of_silent_connections_closes_its_own(kit: ReaderKit) -> None:
    with ExitStack() as stack:
        speaker = stack.enter_context(connected(kit))
        assert speaker.ask(send_frame("TopicA", b"x")).code == 0
        fill(kit, stack, 1)
        time.sleep(20 * PACE_S)  # span: they are silent for longer than a client needs to speak
        for n in range(3 * PLACES):  # far more than there are places
            with connected(kit) as newcomer:
                assert newcomer.ask(send_frame("TopicA", b"new")).code == 0, n
            stack.enter_context(connected(kit))
            time.sleep(PACE_S)  # span: so are some of those that come
        assert speaker.ask(send_frame("TopicA", b"x")).code == 0
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_FULL) >= 2 * PLACES, "silent ones were closed")


def test_connections_that_have_spoken_keep_their_places(kit: ReaderKit) -> None:
    with ExitStack() as stack:
        speakers = [stack.enter_context(connected(kit)) for _ in range(PLACES)]
        for speaker in speakers:
            assert speaker.ask(send_frame("TopicA", b"x")).code == 0
        with connected(kit) as one_more:
            assert one_more.is_closed()
        for speaker in speakers:
            assert speaker.ask(send_frame("TopicA", b"x")).code == 0


def test_a_frame_in_the_making_is_no_speech(kit: ReaderKit) -> None:
    with ExitStack() as stack:
        for client in fill(kit, stack):
            client.send(request(105, {"topic": "A"})[:20])
        time.sleep(20 * PACE_S)  # span: they are silent for longer than a client needs to speak
        for _ in range(PLACES // 2):
            newcomer = stack.enter_context(connected(kit))
            assert newcomer.ask(send_frame("TopicA", b"new")).code == 0
